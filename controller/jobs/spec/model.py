"""The job that an orchestrator asks for: what it may say, and how it is refused.

A field is taken where a plugin does something with it (see ``Pipeline.offered_fields``): what
nobody would carry out is refused as unknown, never dropped. docs/controller-api.md is the
contract.
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

from controller.jobs.spec.field_types import Bandwidth, Cpu, Memory, PluginFields, parse_path
from controller.jobs.spec.parameters import (
    COPIED,
    ArtefactsParameter,
    DirectoryParameter,
    FileParameter,
    JobFile,
    Parameter,
    Path,
    Strict,
    Text,
    secret_of,
)
from controller.jobs.spec.problems import TAG
from controller.volcano.policies import Action, Event, Rule
from shared.routes.route import Clipboard

ID_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
TOOL_ID_PATTERN: Final = r"^tool\.[0-9a-f]{24}$"
"""Of a tool's run, which is no job: no job's identifier has a dot."""
ENDPOINT_PATTERN: Final = r"^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$"
TASK_PATTERN: Final = r"^[a-z]([-a-z0-9]{0,10}[a-z0-9])?$"
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
LINK_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
DEFAULT_TASK: Final = "job"
MOST_REPLICAS: Final = 1000
MOST_TASKS: Final = 32
MOST_PREDECESSORS: Final = 32
MOST_TOOLS: Final = 16
MOST_PLUGINS: Final = 32
MOST_PARAMETERS: Final = 1000
MOST_FILLED: Final = 2 * MOST_PARAMETERS + 1

JobId = Annotated[str, Field(pattern=ID_PATTERN)]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][-A-Za-z0-9_]{0,62}$")]
FilledIn = Annotated[
    str, Field(pattern=r"^(framework|parameters\.[A-Za-z_][-A-Za-z0-9_]{0,62}(\.path)?)$")
]
"""What of a job can be filled in when it is accepted."""
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EndpointName = Annotated[str, Field(pattern=ENDPOINT_PATTERN)]
ToolName = Annotated[str, Field(pattern=ENDPOINT_PATTERN)]
TaskName = Annotated[str, Field(pattern=TASK_PATTERN)]
SiteName = Annotated[str, Field(pattern=NAME_PATTERN)]
"""A name of the deployment's: of a product, a queue, a priority, a runtime, a credential."""
FrameworkName = Literal["pytorch", "mpi", "tensorflow", "ray"]
Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9][-._:/@A-Za-z0-9]{0,511}$")]
Replicas = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]
Port = Annotated[int, Field(ge=1, le=65535)]
BasePath = Annotated[str, Field(max_length=1024, pattern=r'^/[!-"$->@-\[\]-~]*$')]


PluginName = Annotated[str, Field(pattern=r"^[a-z][_a-z0-9]{0,39}$")]


class Owner(Strict):
    """Whose job it is: a user's, within a project or not."""

    user: Name
    project: Name | None = None


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """Whose a job is, as far as shares, names and peers are concerned."""

    kind: Literal["user", "project"]
    name: str

    def encode(self) -> str:
        """Return the owner as it stands in annotations and in the store."""
        return json.dumps({self.kind: self.name}, separators=(",", ":"))


def owner_key(owner: Owner) -> OwnerKey:
    """Return the project, or the user where there is none."""
    if owner.project is not None:
        return OwnerKey("project", owner.project)
    return OwnerKey("user", owner.user)


class Resources(Strict):
    """What each replica gets: its requests and its limits alike."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    gpu: Annotated[int, Field(ge=0, le=1024)] | None = None


class ParameterRef(Strict):
    """Where the value of a parameter goes; ``prefix`` stands directly before it.

    A repeated parameter becomes a word for each of its values, or with ``separator`` a single
    one. What is ``optional`` is left out where the job has no such parameter.
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
    """A port on which the job serves people, in every rank of its task."""

    kind: Literal["web", "vnc"] = Field(description="What is spoken there.")
    port: Port = Field(description="Where the program listens, on all addresses.")
    base_path: BasePath = Field(
        default="/", description="Put before every path that a browser asks for."
    )
    task: str | None = Field(
        default=None, description="In whose ranks it is; in all of them without it."
    )
    password: PasswordRef | None = Field(
        default=None,
        description="Which parameter has the desktop's password; without it the page asks.",
    )
    clipboard: Clipboard = Field(
        default="both", description="Which way text may go; `in` is into the session."
    )
    service_workers: bool = Field(
        default=False,
        description="An app may register one for its whole host; browsers are then kept out.",
    )
    url: bool = Field(
        default=False,
        description="A session is made with the job, and its URL told to the program.",
    )
    frame: bool = Field(
        default=False, description="Browsers show the app beneath a bar of the gateway's."
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


class Policy(Strict):
    """What Volcano does when something happens: an ``event``, or a program's ``exit_code``."""

    action: Action
    event: Event | None = None
    exit_code: Annotated[int, Field(ge=1, le=255)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=10**8)] | None = None

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        if (self.event is None) == (self.exit_code is None):
            raise ValueError("either an event or an exit_code")
        return self

    def rule(self) -> Rule:
        """Return it as Volcano has it."""
        return Rule(
            action=self.action,
            event=self.event,
            exit_code=self.exit_code,
            timeout_seconds=self.timeout_seconds,
        )


Policies = Annotated[list[Policy], Field(max_length=64)]


class NetworkTopology(Strict):
    """How near to each other the pods are: ``hard`` waits for it, ``soft`` tries."""

    mode: Literal["hard", "soft"]
    tier: Annotated[int, Field(ge=1, le=1000)] | None = None


class Topology(Strict):
    """Where a pod's processors are within its node, and pods within the network."""

    numa: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    network: NetworkTopology | None = None


class NetworkLimits(Strict):
    """Bits per second of each replica."""

    ingress: Bandwidth | None = None
    egress: Bandwidth | None = None


class Task(Strict):
    """A group of equal replicas; what it does not say, the job says for all."""

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
    owner: Owner = Field(description="Whose job it is.")
    name: Name | None = Field(default=None, description="For people.")
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, max_length=64, description="To find it by."
    )
    kind: SiteName | None = Field(
        default=None, description="A word, or one of the declared kinds (/v1/kinds)."
    )
    after: Annotated[list[JobId], Field(max_length=MOST_PREDECESSORS)] = Field(
        default_factory=list, description="Jobs of the same owner that it waits for."
    )
    tasks: list[Task] = Field(
        default_factory=list,
        max_length=MOST_TASKS,
        description="Groups of replicas; without them the job is the single task `job`.",
    )
    # After tasks, each of which may have one.
    image: Image | None = Field(
        default=None,
        validate_default=True,
        description="What runs; needed unless every task has one.",
    )
    pull_credential: SiteName | None = Field(
        default=None, description="Names a registry's credential that the deployment has."
    )
    product: SiteName | None = Field(default=None, description="One of /v1/products.")
    resources: Resources = Field(
        default=Resources(), description="What each replica gets: requests and limits alike."
    )
    replicas: Replicas = Field(default=1, description="How many of each task that does not say.")
    framework: FrameworkName | None = Field(
        default=None, description="Turns on Volcano's plugin of that name."
    )
    queue: SiteName | None = Field(default=None, description="Its owner's unless it is said.")
    priority: SiteName | None = Field(
        default=None, description="One of the deployment's priorities."
    )
    topology: Topology = Field(default=Topology(), description="Where its pods are placed.")
    runtime: SiteName | None = Field(default=None, description="One of the deployment's runtimes.")
    time_allocation_seconds: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None,
        description="How long it may run, from its first start; without it as long as it does.",
    )
    stop_grace_seconds: Annotated[int, Field(ge=1, le=10**6)] | None = Field(
        default=None, description="From SIGTERM to SIGKILL when it is stopped; 30 without it."
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
        default=None, description="The working directory, as /<volume>/<rest>; it is there already."
    )
    network: NetworkLimits = Field(
        default=NetworkLimits(), description="Limits of its pods' network."
    )
    interactive: dict[EndpointName, Endpoint] = Field(
        default_factory=dict, max_length=16, description="Endpoints that people may reach, by name."
    )
    links: list[Annotated[str, Field(pattern=LINK_PATTERN)]] = Field(
        description="Public links to its first web endpoint.", default_factory=list, max_length=16
    )
    tools: Annotated[list[ToolName], Field(max_length=MOST_TOOLS)] = Field(
        default_factory=list, description="What is attached to rank 0 as soon as it runs."
    )
    policies: Policies = Field(
        default_factory=list, description="What is done when something happens to it."
    )
    max_retry: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="How often it may be started again."
    )
    min_success: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="It has succeeded once so many of its pods have."
    )
    plugins: dict[PluginName, PluginFields] = Field(
        default_factory=dict,
        max_length=MOST_PLUGINS,
        description="What it says to plugins of other packages, by their names.",
    )
    # What of it was not asked for, but filled in when it was accepted; no call may say it.
    filled: list[FilledIn] = Field(
        default_factory=list,
        max_length=MOST_FILLED,
        description="What was filled in when it was accepted; no call may say it.",
    )

    @field_validator("image")
    @classmethod
    def _is_there(cls, value: str | None, info: ValidationInfo) -> str | None:
        tasks = info.data.get("tasks")
        # Without an answer about the tasks, they are what is wrong.
        if value is None and tasks is not None and not (tasks and all(t.image for t in tasks)):
            raise PydanticKnownError("missing")
        return value

    @cached_property
    def effective_tasks(self) -> tuple[EffectiveTask, ...]:
        """The tasks with what the job says for all of them, in the order that ranks follow."""
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
        """How many ranks there are."""
        return sum(task.replicas for task in self.effective_tasks)

    def rank_of(self, task: str, index: int) -> int | None:
        """Return the rank of the task's replica, None where the job has no such one."""
        for one in self.effective_tasks:
            if one.name == task and 0 <= index < one.replicas:
                return one.first + index
        return None

    def task_of(self, rank: int) -> str | None:
        """Return the name of the task that the rank belongs to."""
        for one in self.effective_tasks:
            if one.first <= rank < one.first + one.replicas:
                return one.name
        return None

    def files(self) -> Iterator[JobFile]:
        """Give the files that the job names."""
        # The output folder first: what is mounted within it comes after it.
        if self.output is not None:
            yield JobFile(at="output", source=parse_path(self.output), kind="directory")
        for name, parameter in self.parameters.items():
            if isinstance(parameter, FileParameter | DirectoryParameter | ArtefactsParameter):
                yield from parameter.files(name)

    def secrets(self) -> dict[str, str]:
        """Return the secret values of parameters by the parameters' names."""
        return dict(self._secret_values())

    def asks_for(self) -> dict[str, str]:
        """Return what of this job some plugin must carry out, and where it stands.

        The fields that it sets; for parameters of types, or with policies, that need more than to
        be written down, ``parameters.<type>`` and ``parameters.<policy>``; and ``plugins.<name>``
        for what it says to a plugin itself.
        """
        asked = {field: field for field in sorted(self.model_fields_set)}
        asked |= {path: path for path in (f"plugins.{name}" for name in self.plugins)}
        for name, parameter in self.parameters.items():
            for word in {parameter.type, getattr(parameter, "policy", "")} & CARRIED_TYPES:
                asked.setdefault(f"parameters.{word}", f"parameters.{name}")
        return asked

    def _secret_values(self) -> Iterator[tuple[str, str]]:
        for name, parameter in self.parameters.items():
            value = secret_of(parameter)
            if value is not None:
                yield name, value


class ToolJob(Job):
    """What is run for a tool of a job: nobody can ask for it by its identifier."""

    id: Annotated[str, Field(pattern=TOOL_ID_PATTERN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveTask:
    """A task as it is run: its replicas' ranks are ``first`` and following.

    ``path`` is where the job says it, and is empty where the job itself is the only task;
    ``inherited`` are the fields that the job says for it.
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
        """Return the path where one of its fields is said."""
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
    """Return *own*, and of what it does not say what is said for all."""
    said = {name: getattr(own, name) for name in type(own).model_fields}
    missing = {name: getattr(of_all, name) for name, value in said.items() if value is None}
    return own.model_copy(update=missing)


CARRIED_TYPES: Final = frozenset({"file", "directory", "artefacts", "peer", *COPIED})
"""Types and policies of parameters that need a plugin of their own (``parameters.<type>``)."""

BASE_FIELDS: Final = frozenset({"id", "owner", "name", "labels", "plugins", "after", "tools"})
"""Fields of a job that need no plugin: they say whose it is and how it is found; and what holds the
fields of plugins, each of which needs its own; and what it waits for before it is submitted, and
what is attached to it, which are jobs themselves."""
