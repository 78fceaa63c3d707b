"""What plugins make of a job: a VolcanoJob, and companions beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import Problem
from controller.settings import JobDefaults
from controller.store.jobs.between_jobs.places import HeldPlace
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
    those are others (see ``controller.store.jobs.between_jobs.connections``), it is made anew.
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
        """Note that the job cannot run because of what is at *path*."""
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
