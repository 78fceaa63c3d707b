"""The job that an orchestrator requests: its fields.

A field is accepted only if a plugin implements it (see ``Pipeline.offered_fields``). Any other
field is refused as unknown, and never dropped. docs/controller-api.md is the contract.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from controller.jobs.spec.field_types import (
    LINK_PATTERN,
    TOOL_ID_PATTERN,
    BasePath,
    EndpointName,
    FilledIn,
    FrameworkName,
    Image,
    JobId,
    LabelName,
    LabelValue,
    Name,
    ParameterName,
    PluginFields,
    PluginName,
    Port,
    Replicas,
    SiteName,
    TaskName,
    ToolName,
    VariableName,
    parse_path,
)
from controller.jobs.spec.parameters import (
    COPIED,
    ArtefactsParameter,
    DirectoryParameter,
    FileParameter,
    JobFile,
    Parameter,
    Path,
    PeerParameter,
    Strict,
    Text,
    secret_of,
)
from controller.jobs.spec.problems import TAG
from controller.jobs.spec.scheduling import NetworkLimits, Policies, Policy, Resources, Topology
from controller.volcano.policies import Rule
from shared.routes.route import Clipboard

DEFAULT_TASK: Final = "job"
MOST_TASKS: Final = 32
MOST_PREDECESSORS: Final = 32
MOST_TOOLS: Final = 16
MOST_PLUGINS: Final = 32
MOST_PARAMETERS: Final = 1000
MOST_FILLED: Final = 2 * MOST_PARAMETERS + 1


class Owner(Strict):
    """The owner of a job: a user, within a project or not."""

    user: Name
    project: Name | None = None


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """The owner of a job for shares, names and peers."""

    kind: Literal["user", "project"]
    name: str

    def encode(self) -> str:
        """Return the owner as it is written in annotations and in the store."""
        return json.dumps({self.kind: self.name}, separators=(",", ":"))


def owner_key(owner: Owner) -> OwnerKey:
    """Return the project, or the user if there is none."""
    if owner.project is not None:
        return OwnerKey("project", owner.project)
    return OwnerKey("user", owner.user)


class ParameterRef(Strict):
    """A reference to a parameter, replaced by its value; ``prefix`` stands directly before it.

    A repeated parameter becomes a word for each of its values, or with ``separator`` a single one.
    An ``optional`` reference is left out if the job has no such parameter.
    """

    parameter: ParameterName
    prefix: Text = ""
    separator: Text | None = None
    optional: bool = False


def _word_tag(value: Any) -> str:
    return f"{TAG}literal" if isinstance(value, str) else f"{TAG}reference"


Word = Annotated[
    Annotated[Text, Tag("~literal")] | Annotated[ParameterRef, Tag("~reference")],
    Discriminator(_word_tag),
]


class Invocation(Strict):
    """The program and its environment. Without ``command`` the image's own program runs."""

    command: list[Word] = Field(default_factory=list, max_length=1000)
    environment: dict[VariableName, Word] = Field(default_factory=dict, max_length=1000)


class PasswordRef(Strict):
    """The secret parameter that holds a password."""

    parameter: ParameterName


class Endpoint(Strict):
    """A port on which the job serves users, in every rank of its task."""

    kind: Literal["web", "vnc"] = Field(description="The protocol.")
    port: Port = Field(description="The port on which the program listens, on all addresses.")
    base_path: BasePath = Field(
        default="/", description="The prefix of every path that a browser requests."
    )
    task: str | None = Field(
        default=None, description="The task whose ranks have it; by default all."
    )
    password: PasswordRef | None = Field(
        default=None,
        description="The parameter with the desktop's password; without it the page asks for one.",
    )
    clipboard: Clipboard = Field(
        default="both",
        description="In which direction text may be copied; `in` is into the session.",
    )
    service_workers: bool = Field(
        default=False,
        description="It may register service workers for its host; then no browser may open it.",
    )
    url: bool = Field(
        default=False,
        description="Whether a session is created with the job, and its URL given to the program.",
    )
    frame: bool = Field(
        default=False, description="Whether browsers show the app below a bar of the gateway."
    )

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind == "web" and self.clipboard != "both":
            raise ValueError("an app's clipboard cannot be restricted, only a vnc endpoint's")
        if self.kind != "web" and self.url:
            raise ValueError("only a web endpoint has a url")
        if self.kind != "web" and self.service_workers:
            raise ValueError("only a web endpoint has service_workers")
        if self.frame and (self.kind != "web" or self.service_workers):
            raise ValueError("only a web endpoint that browsers open has a frame")
        if self.kind != "vnc" and self.password is not None:
            raise ValueError("only a vnc endpoint has a password")
        if self.kind != "web" and self.base_path != "/":
            raise ValueError("only a web endpoint has a base_path")
        return self


class Task(Strict):
    """A group of equal replicas; the job sets the fields that the task does not."""

    name: TaskName
    replicas: Replicas | None = None
    min_available: Replicas | None = None
    image: Image | None = None
    resources: Resources = Resources()
    invocation: Invocation | None = None
    depends_on: Annotated[list[TaskName], Field(max_length=MOST_TASKS)] = Field(
        default_factory=list
    )
    policies: Policies = Field(default_factory=list)


class Job(Strict):
    """A job as accepted."""

    id: JobId = Field(
        description="Chosen by the orchestrator; pods are called j-<id>-<task>-<index>."
    )
    owner: Owner = Field(description="The owner of the job.")
    name: Name | None = Field(default=None, description="A name for people.")
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, max_length=64, description="Labels to select it by."
    )
    kind: SiteName | None = Field(
        default=None, description="A word, or one of the declared kinds (/v1/kinds)."
    )
    after: Annotated[list[JobId], Field(max_length=MOST_PREDECESSORS)] = Field(
        default_factory=list, description="Jobs of the same owner whose end it waits for."
    )
    tasks: list[Task] = Field(
        default_factory=list,
        max_length=MOST_TASKS,
        description="Groups of replicas; without them the job is the single task `job`.",
    )
    # Declared after ``tasks``: each task may have an image.
    image: Image | None = Field(
        default=None,
        validate_default=True,
        description="The image; required unless every task has one.",
    )
    pull_credential: SiteName | None = Field(
        default=None, description="The name of a registry credential of the deployment."
    )
    product: SiteName | None = Field(default=None, description="One of /v1/products.")
    resources: Resources = Field(
        default=Resources(), description="The resources of each replica: requests and limits alike."
    )
    replicas: Replicas = Field(default=1, description="Replicas of each task that names no number.")
    framework: FrameworkName | None = Field(
        default=None, description="Enables Volcano's plugin of that name."
    )
    queue: SiteName | None = Field(default=None, description="The queue; by default its owner's.")
    priority: SiteName | None = Field(
        default=None, description="One of the deployment's priorities."
    )
    topology: Topology = Field(default=Topology(), description="The placement of its pods.")
    runtime: SiteName | None = Field(default=None, description="One of the deployment's runtimes.")
    time_allocation_seconds: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None,
        description="How long it may run from its first start; without it, without limit.",
    )
    stop_grace_seconds: Annotated[int, Field(ge=1, le=10**6)] | None = Field(
        default=None,
        description="Seconds from SIGTERM to SIGKILL when it is stopped; 30 by default.",
    )
    invocation: Invocation = Field(
        default=Invocation(), description="The program and its environment."
    )
    parameters: dict[ParameterName, Parameter] = Field(
        description="Values for the invocation, by name.",
        default_factory=dict,
        max_length=MOST_PARAMETERS,
    )
    output: Path | None = Field(
        default=None, description="The working directory, as /<volume>/<rest>; it must exist."
    )
    network: NetworkLimits = Field(
        default=NetworkLimits(), description="Bandwidth limits of its pods."
    )
    interactive: dict[EndpointName, Endpoint] = Field(
        default_factory=dict, max_length=16, description="Endpoints that users may reach, by name."
    )
    links: list[Annotated[str, Field(pattern=LINK_PATTERN)]] = Field(
        description="Public links to its first web endpoint.", default_factory=list, max_length=16
    )
    tools: Annotated[list[ToolName], Field(max_length=MOST_TOOLS)] = Field(
        default_factory=list, description="Tools to attach to rank 0 as soon as it runs."
    )
    policies: Policies = Field(default_factory=list, description="Actions on events of its pods.")
    max_retry: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="How often it may be restarted."
    )
    min_success: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="It succeeds once so many of its pods have succeeded."
    )
    plugins: dict[PluginName, PluginFields] = Field(
        default_factory=dict,
        max_length=MOST_PLUGINS,
        description="Fields for third-party plugins, by plugin name.",
    )
    # Paths that were filled in at the acceptance; no call may set them.
    filled: list[FilledIn] = Field(
        default_factory=list,
        max_length=MOST_FILLED,
        description="Paths that were filled in at the acceptance; no call may set it.",
    )

    @field_validator("image")
    @classmethod
    def _is_there(cls, value: str | None, info: ValidationInfo) -> str | None:
        tasks = info.data.get("tasks")
        # Invalid tasks are reported by themselves.
        if value is None and tasks is not None and not (tasks and all(t.image for t in tasks)):
            raise PydanticKnownError("missing")
        return value

    @cached_property
    def effective_tasks(self) -> tuple[EffectiveTask, ...]:
        """The tasks, completed with the job's own fields, in the order of ranks."""
        found: list[EffectiveTask] = []
        first = 0
        for index, task in enumerate(self.tasks or [Task(name=DEFAULT_TASK)]):
            replicas = task.replicas or self.replicas
            found.append(
                EffectiveTask(
                    name=task.name,
                    path=f"tasks[{index}]" if self.tasks else "",
                    inherited=frozenset(_unsaid(task)),
                    first=first,
                    replicas=replicas,
                    min_available=task.min_available or replicas,
                    image=task.image or self.image or "",
                    resources=_merged(task.resources, self.resources),
                    invocation=task.invocation or self.invocation,
                    depends_on=tuple(task.depends_on),
                    policies=tuple(task.policies),
                )
            )
            first += replicas
        return tuple(found)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return sum(task.replicas for task in self.effective_tasks)

    def rank_of(self, task: str, index: int) -> int | None:
        """Return the rank of the task's replica; None if the job has no such replica."""
        for one in self.effective_tasks:
            if one.name == task and 0 <= index < one.replicas:
                return one.first + index
        return None

    def task_of(self, rank: int) -> str | None:
        """Return the name of the task of the rank."""
        for one in self.effective_tasks:
            if one.first <= rank < one.first + one.replicas:
                return one.name
        return None

    @property
    def has_policies(self) -> bool:
        """Whether the job or one of its tasks has a policy."""
        return bool(self.policies) or any(task.policies for task in self.effective_tasks)

    def rules(self) -> list[list[Rule]]:
        """Return the policies in the form that Volcano has: those of each task, then the job's."""
        lists = [*(task.policies for task in self.effective_tasks), self.policies]
        return [[policy.rule() for policy in policies] for policies in lists]

    def endpoints_of(self, task: str) -> dict[str, Endpoint]:
        """Return the endpoints of the pods of *task*, by name."""
        return {name: one for name, one in self.interactive.items() if one.task in (None, task)}

    def probed_endpoint(self, task: str) -> Endpoint | None:
        """Return the endpoint that is probed for the pod's readiness; a container has one probe.

        The probed endpoint is the first one that is no desktop, if there is one: a VNC server locks
        out clients that connect and send nothing, as a probe does. The routes of the other
        endpoints do not wait for it (see :func:`controller.sessions.routes.route_of`).
        """
        endpoints = self.endpoints_of(task).values()
        return min(endpoints, key=lambda endpoint: endpoint.kind == "vnc", default=None)

    def endpoints_with_url(self) -> dict[str, Endpoint]:
        """Return the endpoints of rank 0 whose sessions are created with the job, by name."""
        return {name: one for name, one in self.interactive.items() if one.url}

    def peers(self) -> dict[str, PeerParameter]:
        """Return the peer parameters, by name."""
        given = self.parameters.items()
        return {name: one for name, one in given if isinstance(one, PeerParameter)}

    def files(self) -> Iterator[JobFile]:
        """Yield the files that the job names."""
        # The output folder first: other files may be mounted within it.
        if self.output is not None:
            yield JobFile(at="output", source=parse_path(self.output), kind="directory")
        for name, parameter in self.parameters.items():
            if isinstance(parameter, FileParameter | DirectoryParameter | ArtefactsParameter):
                yield from parameter.files(name)

    def secrets(self) -> dict[str, str]:
        """Return the secret values of parameters, by parameter name."""
        return dict(self._secret_values())

    def asks_for(self) -> dict[str, str]:
        """Return the parts of this job that a plugin must implement, with their paths.

        These are the fields that the job sets; ``parameters.<type>`` and ``parameters.<policy>``
        for parameters that need a plugin; and ``plugins.<name>`` for the fields of a third-party
        plugin.
        """
        required = {field: field for field in sorted(self.model_fields_set)}
        required |= {path: path for path in (f"plugins.{name}" for name in self.plugins)}
        for name, parameter in self.parameters.items():
            for word in {parameter.type, getattr(parameter, "policy", "")} & CARRIED_TYPES:
                required.setdefault(f"parameters.{word}", f"parameters.{name}")
        return required

    def _secret_values(self) -> Iterator[tuple[str, str]]:
        for name, parameter in self.parameters.items():
            value = secret_of(parameter)
            if value is not None:
                yield name, value


class ToolJob(Job):
    """The run of a tool, in the form of a job; no request can name its identifier."""

    id: Annotated[str, Field(pattern=TOOL_ID_PATTERN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveTask:
    """A task as it runs: its replicas have the ranks from ``first`` on.

    ``path`` is the path of the task in the job, empty if the job itself is the only task.
    ``inherited`` are the fields that the job sets for it.
    """

    name: str
    path: str
    inherited: frozenset[str]
    first: int
    replicas: int
    min_available: int
    image: str
    resources: Resources
    invocation: Invocation
    depends_on: tuple[str, ...]
    policies: tuple[Policy, ...]

    def at(self, field: str) -> str:
        """Return the path at which one of its fields is set."""
        parts = field.split(".")
        said_by_the_job = self.inherited & {parts[0], ".".join(parts[:2])}
        return field if said_by_the_job or not self.path else f"{self.path}.{field}"


def _unsaid(task: Task) -> Iterator[str]:
    for name in ("replicas", "image", "invocation"):
        if getattr(task, name) is None:
            yield name
    for name in Resources.model_fields:
        if getattr(task.resources, name) is None:
            yield f"resources.{name}"


def _merged(own: Resources, of_all: Resources) -> Resources:
    """Return *own*, completed with the fields of *of_all*."""
    said = {name: getattr(own, name) for name in type(own).model_fields}
    missing = {name: getattr(of_all, name) for name, value in said.items() if value is None}
    return own.model_copy(update=missing)


CARRIED_TYPES: Final = frozenset({"file", "directory", "artefacts", "peer", *COPIED})
"""Types and policies of parameters that need a plugin of their own (``parameters.<type>``)."""

BASE_FIELDS: Final = frozenset({"id", "owner", "name", "labels", "plugins", "after", "tools"})
"""Fields of a job that need no plugin.

These are the job's identity and labels; ``plugins``, whose members need a plugin each; the
predecessors (``after``); and ``tools``, which are jobs themselves.
"""
