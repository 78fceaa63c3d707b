"""Collects and checks the plugins' plan for a job: VolcanoJob, companions, helpers. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from controller.jobs.pipeline.border import BadResult, kind_of
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import MOST_PROBLEMS, Problem
from controller.site.job_defaults import JobDefaults
from controller.store.jobs.folders import HeldPlace
from controller.volcano.manifest import Container, Mount, Task, Variable, VolcanoJob, Volume, escape
from controller.volcano.names import JOB_CONTAINER, volcano_job_name
from controller.volcano.preflight import findings
from shared.text import plain_text

When = Literal["before", "after"]
T = TypeVar("T")


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

    The object has the instance's label. An existing foreign object is never changed.

    Args:
        kind: The kind.
        name: The name.
        namespace: The namespace; None for cluster-scoped kinds.
        manifest: Everything but name, labels and annotations.
        labels: Labels beside the instance's.
        annotations: Its identity: an existing object with other annotations is foreign.
        kept: Whether the object is only created and never updated: operators may change it.
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

    ``names`` are in the order in which the job's pods number them, from 1. ``cleaner`` deletes the
    mount points. Its further arguments are a deadline (unix seconds) and their names.
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
        """The places of the owner's files, by the field of the job that names them."""
        self.nested_mounts: NestedMounts | None = None
        """The mounts within the output folder, if the folder is to be cleaned."""

    def refuse(self, path: str, message: str) -> None:
        """Add a problem at *path*: the job cannot run. The number of problems is bounded."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(path, message))

    def wait_for(self, what: str) -> None:
        """Delay the VolcanoJob until *what*, a prerequisite, exists."""
        self.waiting.append(what)

    def add_companion(self, companion: Companion) -> None:
        """Apply *companion* with the job.

        Raises:
            ValueError: If a companion of that kind and name exists: two plugins disagree.
        """
        if any((c.kind, c.name) == (companion.kind, companion.name) for c in self.companions):
            raise ValueError(f"two plugins make the {companion.kind} {companion.name}")
        self.companions.append(companion)

    def task(self, name: str) -> Task:
        """Return the task *name*, which the task plugin has added.

        Raises:
            LookupError: If the task is missing: the caller runs too early.
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


# Checks of the builder after a plugin


MOST_OBJECTS: Final = 1000
MOST_BYTES: Final = 1_400_000
"""Of one object; etcd accepts 1.5 MiB."""
LONGEST_PROBLEM: Final = 2000
SHAREABLE: Final = (
    *("Namespace", "NetworkPolicy", "PersistentVolumeClaim", "Queue"),
    *("ResourceQuota", "RoleBinding", "Secret"),
)
"""Kinds of shared objects that the controller may create."""
_LONGEST_KIND: Final = 64
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[!-$&-.0-~]{1,253}", re.ASCII)


def check_builder(builder: JobBuilder) -> None:
    """Check that the next plugin can use *builder*.

    Raises:
        BadResult: If it cannot, or if the builder holds too much.
    """
    if not isinstance(builder.volcano_job, VolcanoJob):
        raise BadResult("replaced the VolcanoJob by something else")
    if builder.volcano_job.name != volcano_job_name(builder.job.id):
        raise BadResult("renamed the VolcanoJob, by whose name it is found")
    if builder.accepted_in not in (None, builder.volcano_job.namespace):
        raise BadResult("moved the VolcanoJob out of the namespace in which it was accepted")
    _check_list(builder.companions, Companion)
    _check_list(builder.shared, SharedObject)
    _check_list(builder.waiting, str)
    checked_problems(builder.problems)
    _check_size("the VolcanoJob", builder.volcano_job.manifest())
    # Findings are reported after all plugins have run. If the VolcanoJob cannot be read, this
    # plugin caused it.
    findings(builder.volcano_job)
    for companion in builder.companions:
        what = _check_object(companion)
        if companion.when not in ("before", "after"):
            raise BadResult(f"made {what} neither before nor after the VolcanoJob")
    for shared in builder.shared:
        what = _check_object(shared)
        if shared.kind not in SHAREABLE:
            raise BadResult(
                f"shared {what}, but only these kinds can be shared: {', '.join(SHAREABLE)}"
            )
        _check_texts(what, {"labels": shared.labels, "annotations": shared.annotations})


def _check_object(made: Companion | SharedObject) -> str:
    """Check the required fields of a created object; return its name for messages.

    The API server demands this form of the name of every kind (Kubernetes, "Object Names and IDs",
    "Path Segment Names").
    """
    if not isinstance(made.kind, str) or not made.kind:
        raise BadResult("made an object without a kind")
    kind = made.kind[:_LONGEST_KIND]
    if not isinstance(made.name, str) or not _NAME.fullmatch(made.name):
        raise BadResult(f"made a {kind} with the invalid name {made.name!r}"[:200])
    what = f"the {kind} {made.name}"[:200]
    if not isinstance(made.manifest, dict):
        raise BadResult(f"made {what} with a manifest that is not an object")
    metadata = made.manifest.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise BadResult(f"made {what} with metadata that is not an object")
    _check_texts(what, metadata or {})
    _check_size(what, made.manifest)
    return what


def _check_texts(what: str, given: Mapping[str, object]) -> None:
    for name in ("labels", "annotations"):
        texts = given.get(name)
        if texts is None:
            continue
        members = [*texts, *texts.values()] if isinstance(texts, dict) else [texts]
        if not isinstance(texts, dict) or not all(isinstance(one, str) for one in members):
            raise BadResult(f"made {what} with {name} that are not a mapping of strings")


def tasks_of_job(builder: JobBuilder) -> set[str]:
    """Return the tasks that have a container for the job's program."""
    return {
        task.name
        for task in builder.volcano_job.tasks
        if any(one.name == JOB_CONTAINER for one in task.template.containers)
    }


def checked_problems(problems: object) -> list[Problem]:
    """Return *problems*, bounded in number and length.

    Raises:
        BadResult: If they are not problems.
    """
    kept = _check_list(problems, Problem)[:MOST_PROBLEMS]
    if not all(isinstance(one.path, str) and isinstance(one.message, str) for one in kept):
        raise BadResult("refused the job with a problem that is not text")
    return [
        Problem(plain_text(one.path, LONGEST_PROBLEM), plain_text(one.message, LONGEST_PROBLEM))
        for one in kept
    ]


def _check_list(given: object, kind: type[T]) -> list[T]:
    if not isinstance(given, list | tuple) or len(given) > MOST_OBJECTS:
        raise BadResult(f"left no list of at most {MOST_OBJECTS} of {kind.__name__}")
    kept = [one for one in given if isinstance(one, kind)]
    if len(kept) < len(given):
        wrong = next(one for one in given if not isinstance(one, kind))
        raise BadResult(f"left {kind_of(wrong)} where a {kind.__name__} should be")
    return kept


def _check_size(what: str, manifest: object) -> None:
    try:
        size = len(json.dumps(manifest, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"made {what} with a manifest that is not JSON") from error
    if size > MOST_BYTES:
        raise BadResult(f"made {what} larger than the cluster accepts")
