"""Builds what plugins plan for a job: VolcanoJob, companions, helper containers. No I/O.

Every plugin may create four kinds of companions; others it declares. The store identifies a
declared kind by its API and plural (``policy/v1/poddisruptionbudgets``), so that its objects can be
deleted after the plugin is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import MOST_PROBLEMS, Problem
from controller.settings import JobDefaults
from controller.store.jobs.folders import HeldPlace
from controller.volcano.manifest import Container, Mount, Task, Variable, VolcanoJob, Volume, escape
from controller.volcano.names import JOB_CONTAINER

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """An object of the cluster that belongs to a job.

    An object that restricts, or that the pods cannot start without, is applied ``before`` the
    VolcanoJob; an object that exposes, ``after`` it. Either way the VolcanoJob owns it, so that the
    garbage collector deletes it. The pipeline adds namespace, labels and owner to ``manifest``.

    A ``lasting`` companion is owned by no VolcanoJob, of which a job may have several. It is
    deleted when the job is over. ``basis`` identifies the connections to other jobs that it was
    made for; when these change (see ``controller.store.jobs.relations``), it is updated.
    """

    kind: str
    name: str
    manifest: dict[str, Any]
    when: When
    lasting: bool = False
    basis: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObject:
    """An object that many jobs share: created if it is missing, and never deleted with a job.

    It has the instance's label. An existing object of anybody else is never touched.

    Args:
        kind: The kind.
        name: The name.
        namespace: The namespace; None for cluster-scoped kinds.
        manifest: Everything but name, labels and annotations.
        labels: Labels beside the instance's.
        annotations: Its identity: an existing object with others is somebody else's.
        kept: It is only created, and never updated: operators may change it.
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
    """Mounts within a job's output folder, which is the folder ``folder`` of a claim.

    ``names`` are in the order in which the job's pods number them, from 1. ``cleaner`` deletes what
    its further arguments name: its deadline (unix seconds), and the names.
    """

    claim: str
    folder: str
    names: tuple[str, ...]
    cleaner: Container
    volume: Volume


class JobBuilder:
    """Collects what the plugins plan for one job, and the problems that they find.

    Args:
        job: The job.
        volcano_job: The planned VolcanoJob.
        accepted_in: The namespace in which it was accepted, which is final; None during the check
            before its acceptance.
        submitted: Whether its VolcanoJob exists, and only companions are applied again: problems of
            the job no longer matter.
        sids: The sessions that were created with the job, by endpoint.
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
        """Add a problem at *path*: the job cannot run. The number of problems is bounded."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(path, message))

    def wait_for(self, what: str) -> None:
        """Delay the VolcanoJob: it needs *what*, which does not exist yet."""
        self.waiting.append(what)

    def add_companion(self, companion: Companion) -> None:
        """Apply *companion* with the job.

        Raises:
            ValueError: If there is one of that kind and name already: two plugins disagree.
        """
        if any((c.kind, c.name) == (companion.kind, companion.name) for c in self.companions):
            raise ValueError(f"two plugins make the {companion.kind} {companion.name}")
        self.companions.append(companion)

    def task(self, name: str) -> Task:
        """Return the task *name*, which the task plugin has added.

        Raises:
            LookupError: If it has not: the caller runs too early.
        """
        for task in self.volcano_job.tasks:
            if task.name == name:
                return task
        raise LookupError(f"there is no task {name} yet: the task plugin must run first")

    def container(self, task: str) -> Container:
        """Return the container of the task *task* that runs the job's program.

        Raises:
            LookupError: If there is none yet.
        """
        for container in self.task(task).template.containers:
            if container.name == JOB_CONTAINER:
                return container
        raise LookupError(f"the task {task} has no container {JOB_CONTAINER}")

    def containers(self) -> list[Container]:
        """Return the container of each task that runs the job's program.

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
    """Return a container that runs *script* with *arguments*, with limits and without privileges.

    The script is the same for all jobs. Values of a job are arguments only, so that no shell
    interprets them. The helper reports through ``/dev/termination-log``.
    """
    pods = defaults.pods
    # A helper that runs as the owner of the files sees those that only the owner may read.
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
"""Kinds that the controller may create in every deployment."""

NAMESPACED_VERBS: Final = ("create", "get", "patch", "delete")
"""Verbs that the controller needs where jobs run; and ``list`` in the whole cluster."""

_LONGEST_KEY: Final = 63
_API: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?", re.ASCII
)
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]*", re.ASCII)
_CONTROLLERS_OWN: Final = frozenset({"pods", "namespaces", "nodes", "events"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionKind:
    """A namespaced kind of companions that a plugin declares.

    The deployment has to grant the controller :data:`NAMESPACED_VERBS` where jobs run, and ``list``
    in the whole cluster (docs/kubernetes.md).

    Args:
        api_version: Group and version, such as ``policy/v1``.
        kind: The kind, by which companions name it.
        plural: The plural in paths and roles, such as ``poddisruptionbudgets``.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def key(self) -> str:
        """The key in the store."""
        return f"{self.api_version}/{self.plural}"

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    def complete(self, companion: Companion) -> Companion:
        """Return *companion*, of this kind, in its stored form."""
        typed: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind}
        return replace(companion, kind=self.key, manifest={**companion.manifest, **typed})


def kind_problems(kinds: object) -> Iterator[str]:
    """Yield the problems of declared kinds, as ends of sentences about the plugin."""
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
    """Return those of *made* that are of declared *kinds* in their stored form, by identity.

    Raises:
        LookupError: If one is neither of these nor of the kinds that every plugin may create.
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
