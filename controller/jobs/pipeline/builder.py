"""Builds what plugins make of a job: VolcanoJob, companions beside it, helpers in pods. No I/O.

Four kinds of companions every plugin may make; others it declares. A declared kind is kept in the
store by its API and plural (``policy/v1/poddisruptionbudgets``), by which its objects can be
removed also when the plugin is no longer there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import MOST_PROBLEMS, Problem
from controller.settings import JobDefaults
from controller.store.jobs.between_jobs import HeldPlace
from controller.volcano.manifest import Container, Mount, Task, Variable, VolcanoJob, Volume, escape
from controller.volcano.names import JOB_CONTAINER

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """An object of the cluster that goes with a job.

    What restricts, or what its pods cannot start without, is applied ``before`` the VolcanoJob;
    what exposes, ``after`` it. Either way the VolcanoJob owns it, so that the cluster removes it.
    The pipeline adds namespace, labels and owner to ``manifest``.

    One that is ``lasting`` is owned by no VolcanoJob, of which a job may have several, and removed
    when the job is over. ``basis`` says of which connections to other jobs it was made: when
    those are others (see ``controller.store.jobs.between_jobs``), it is made anew.
    """

    kind: str
    name: str
    manifest: dict[str, Any]
    when: When
    lasting: bool = False
    basis: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObject:
    """An object that many jobs share: made where it is missing, never removed with a job.

    It is labelled with the instance. One that is there and is not the instance's is never touched.

    Args:
        kind: What it is.
        name: Its name.
        namespace: Where it is; None for kinds that have no namespace.
        manifest: All of it but name, labels and annotations.
        labels: Beside the instance's.
        annotations: By which it is known: where it is there with others, it is somebody else's.
        kept: It is only made; what operators change about it stays as they want it.
    """

    kind: str
    name: str
    namespace: str | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedMounts:
    """Mounts within a job's output folder, the folder ``folder`` of a claim.

    ``names`` are in the order in which the job's pods number them from 1 on. ``cleaner`` removes
    what its further arguments name: until when it may (unix seconds), and the names.
    """

    claim: str
    folder: str
    names: tuple[str, ...]
    cleaner: Container
    volume: Volume


class JobBuilder:
    """Collects what the plugins make of one job, and what they find wrong with it.

    Args:
        job: The job.
        volcano_job: What is made of it.
        accepted_in: The namespace in which it was accepted, which nothing changes any more; None
            while it is asked whether it can be accepted.
        submitted: Whether its VolcanoJob is there, and only companions are made anew: what is
            wrong with the job now no longer matters.
        sids: The sessions that were made with the job, by their endpoints; none before that.
    """

    def __init__(
        self,
        job: Job,
        volcano_job: VolcanoJob,
        *,
        accepted_in: str | None = None,
        submitted: bool = False,
        sids: Mapping[str, str] | None = None,
    ) -> None:
        self.sids = sids or {}
        self.job = job
        self.volcano_job = volcano_job
        self.accepted_in = accepted_in
        self.submitted = submitted
        self.companions: list[Companion] = []
        self.shared: list[SharedObject] = []
        self.problems: list[Problem] = []
        self.waiting: list[str] = []
        self.places: dict[str, HeldPlace] = {}
        """Where the owner's files are that the job names, by what of the job names them."""
        self.nested_mounts: NestedMounts | None = None
        """What is mounted within the output folder, where that is to be cleaned."""

    def refuse(self, path: str, message: str) -> None:
        """Note that the job cannot run because of what is at *path*; no more than are told."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(path, message))

    def wait_for(self, what: str) -> None:
        """Have the VolcanoJob made later: *what* it needs is not there yet."""
        self.waiting.append(what)

    def add_companion(self, companion: Companion) -> None:
        """Have *companion* applied with the job.

        Raises:
            ValueError: If there is one of that kind and name already: the plugins disagree.
        """
        if any((c.kind, c.name) == (companion.kind, companion.name) for c in self.companions):
            raise ValueError(f"two plugins make the {companion.kind} {companion.name}")
        self.companions.append(companion)

    def task(self, name: str) -> Task:
        """Return the task *name*, which the task plugin has made.

        Raises:
            LookupError: If it has not: the plugin that asks runs too early.
        """
        for task in self.volcano_job.tasks:
            if task.name == name:
                return task
        raise LookupError(f"there is no task {name} yet: the task plugin must run first")

    def container(self, task: str) -> Container:
        """Return the container of the task *task* in which the job's program runs.

        Raises:
            LookupError: If there is none yet.
        """
        for container in self.task(task).template.containers:
            if container.name == JOB_CONTAINER:
                return container
        raise LookupError(f"the task {task} has no container {JOB_CONTAINER}")

    def containers(self) -> list[Container]:
        """Return the container of each task in which the job's program runs.

        Raises:
            LookupError: If there is none yet.
        """
        found = [
            container
            for task in self.volcano_job.tasks
            for container in task.template.containers
            if container.name == JOB_CONTAINER
        ]
        if not found:
            raise LookupError("there is no task yet: the task plugin must run first")
        return found


def make_helper(
    name: str,
    script: str,
    arguments: Sequence[str],
    *,
    defaults: JobDefaults,
    mounts: Sequence[Mount],
    environment: Sequence[Variable] = (),
) -> Container:
    """Return a container that runs *script* with *arguments*, limited, and without rights.

    The script is ours and the same for all jobs; whatever a job says is an argument, which no
    shell reads as anything else. What it has to tell it writes to ``/dev/termination-log``.
    """
    pods = defaults.pods
    # Files that only their owner may see are seen by a helper that runs as their owner.
    user = pods.helper_user if defaults.run_as_user is None else defaults.run_as_user
    return Container(
        name=name,
        image=pods.helper_image,
        resources={"cpu": pods.helper_cpu, "memory": pods.helper_memory},
        command=["sh", "-c", escape(script), name, *map(escape, arguments)],
        environment=list(environment),
        mounts=list(mounts),
        security_context={
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsUser": user,
        },
        more={"terminationMessagePolicy": "FallbackToLogsOnError"},
    )


OWN_KINDS: Final = frozenset({"Secret", "ConfigMap", "Service", "NetworkPolicy"})
"""What the controller has rights to in every deployment."""

NAMESPACED_VERBS: Final = ("create", "get", "patch", "delete")
"""What the controller must be allowed where jobs run; and ``list``, in the whole cluster."""

_LONGEST_KEY: Final = 63
_API: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?", re.ASCII
)
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]*", re.ASCII)
_CONTROLLERS_OWN: Final = frozenset({"pods", "namespaces", "nodes", "events"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionKind:
    """A namespaced kind whose objects a plugin makes as companions.

    The deployment has to grant the controller :data:`NAMESPACED_VERBS` where jobs run, and ``list``
    in the whole cluster (docs/kubernetes.md).

    Args:
        api_version: Group and version, such as ``policy/v1``.
        kind: The kind, by which companions name it.
        plural: As it stands in paths and roles, such as ``poddisruptionbudgets``.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def key(self) -> str:
        """What the store knows it by."""
        return f"{self.api_version}/{self.plural}"

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    def complete(self, companion: Companion) -> Companion:
        """Return *companion*, of this kind, as it is made and kept."""
        typed: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind}
        return replace(companion, kind=self.key, manifest={**companion.manifest, **typed})


def kind_problems(kinds: object) -> Iterator[str]:
    """Yield what is wrong with the kinds that a plugin declares, as ends of sentences about it."""
    if not isinstance(kinds, tuple | list) or not all(
        isinstance(one, CompanionKind) for one in kinds
    ):
        yield "has companion_kinds that are no tuple of CompanionKind"
        return
    for one in kinds:
        problem = _problem(one)
        if problem:
            yield f"declares companions of the kind {one.kind}, {problem}"
    names = [one.kind for one in kinds]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"declares companions of the kind {name} twice"


def _problem(one: CompanionKind) -> str | None:
    if one.kind in OWN_KINDS and one.group in ("", "networking.k8s.io"):
        return "which need no declaration"
    if one.group.endswith("volcano.sh") or (one.group == "" and one.plural in _CONTROLLERS_OWN):
        return "which are the controller's own"
    for text, pattern, what in (
        (one.api_version, _API, "group and version"),
        (one.kind, _KIND, "kind"),
        (one.plural, _PLURAL, "plural"),
    ):
        if not isinstance(text, str) or not pattern.fullmatch(text):
            return f"whose {what} cannot be {text!r}"
    if len(one.key) > _LONGEST_KEY:
        return f"whose API and plural are longer than {_LONGEST_KEY} characters"
    return None


def complete_companions(
    made: Sequence[Companion], kinds: Sequence[CompanionKind]
) -> dict[int, Companion]:
    """Return those of *made* that are of declared *kinds* as they are kept, by their identity.

    Raises:
        LookupError: If one is neither of these nor of the kinds that every plugin may make.
    """
    declared = {one.kind: one for one in kinds}
    completed = {}
    for companion in made:
        if companion.kind in declared:
            completed[id(companion)] = declared[companion.kind].complete(companion)
        elif companion.kind not in OWN_KINDS:
            text = f"made a {companion.kind}, which is not among its companion_kinds"
            raise LookupError(text[:200])
    return completed
