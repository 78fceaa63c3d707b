"""The records of a job's pods, and when they are due. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from controller.jobs.spec.model import Job
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import EVICTIONS, STORAGE_LIMIT, ObservedPod

MOST_EXITS: Final = 100
INIT: Final = "Init:"
"""Prefix of a pod's reason, before the name of the init container that failed."""
DEADLINE: Final = "DeadlineExceeded"
"""The reason of a pod that exceeded its deadline."""
_A_MOMENT_SECONDS: Final = 1e-6
OVER: Final = ("Succeeded", "Failed")
"""The phases of pods that have ended."""


def is_of(pod: ObservedPod, uid: str | None, runs: Collection[str]) -> bool:
    """Return whether *pod* belongs to the VolcanoJob *uid*; *runs* are the uids of recorded pods.

    A recorded pod without an owner still belongs to it: ``kubectl delete --cascade=orphan`` removes
    the owner reference and lets the pod run.
    """
    return pod.owner_uid == uid or (not pod.owner_uid and pod.uid in runs)


def own_pods(
    pods: Iterable[ObservedPod], uid: str | None, runs: Collection[str]
) -> list[ObservedPod]:
    """Return those of *pods* that belong to the VolcanoJob, by :func:`is_of`."""
    return [pod for pod in pods if is_of(pod, uid, runs)]


def pod_at(
    rank: int, *, job: Job, record: JobRecord, pods: Iterable[ObservedPod]
) -> ObservedPod | None:
    """Return the pod at *rank* of the job's current attempt that is not being deleted."""
    for pod in pods:
        mine = pod.owner_uid == record.uid and not pod.deleting
        if mine and job.rank_of(pod.task, pod.index) == rank:
            return pod
    return None


def are_recorded(
    runs: Mapping[str, PodRecord], present: Iterable[ObservedPod], departed: Iterable[ObservedPod]
) -> bool:
    """Return whether *runs* contain everything that was observed about these pods.

    A recorded pod that is neither present nor departed was deleted unobserved: its record must have
    an end, too.
    """
    seen = set()
    for pod in present:
        seen.add(pod.uid)
        if not _is_recorded(runs.get(pod.uid), pod, gone=False):
            return False
    for pod in departed:
        seen.add(pod.uid)
        if not _is_recorded(runs.get(pod.uid), pod, gone=True):
            return False
    return all(run.ended_at is not None for uid, run in runs.items() if uid not in seen)


def own_are_recorded(
    runs: Mapping[str, PodRecord],
    present: Iterable[ObservedPod],
    departed: Iterable[ObservedPod],
    uid: str | None,
) -> bool:
    """Return whether :func:`are_recorded` holds for the VolcanoJob's own pods."""
    return are_recorded(runs, own_pods(present, uid, runs), own_pods(departed, uid, runs))


def _is_recorded(run: PodRecord | None, pod: ObservedPod, *, gone: bool) -> bool:
    if run is None:
        return False
    if _is_older(pod, run):
        return run.ended_at is not None or not gone
    facts = (run.node, run.phase, run.reason, run.exit_code, run.started_at)
    exit_code, _ = _exit(pod, run)
    if facts != (pod.node, pod.phase, _reason(pod, run), exit_code, _started_at(pod, run)):
        return False
    return (run.ended_at is not None) == (gone or pod.is_over)


def _is_older(pod: ObservedPod, run: PodRecord) -> bool:
    """Return whether the pod is observed in an earlier state than *run* records.

    The watch of this leader may lag behind that of the leader before it. The program of a job's pod
    is never restarted within the pod. A kubelet that starts again may refuse pods that have ended
    (before Kubernetes 1.31.1): how their programs ended stays.
    """
    if run.phase in OVER:
        lost_its_exit = pod.ended is None and run.exit_code is not None and not pod.was_evicted
        return pod.phase not in OVER or lost_its_exit or was_undone(pod, run)
    if pod.phase in OVER or pod.ended is not None:
        return False
    began_since = run.started_at is not None and pod.started_at is None
    return run.exit_code is not None or began_since


def was_undone(pod: ObservedPod, run: PodRecord | None) -> bool:
    """Return whether a pod is called failed or evicted that had succeeded by itself before.

    Kubernetes' taint manager sets the condition of evicted pods on ended pods, too.
    """
    if run is None or run.phase != "Succeeded" or run.reason in EVICTIONS:
        return False
    return pod.phase == "Failed" or pod.was_evicted


def make_pod_records(
    job: Job,
    attempt: int,
    *,
    runs: Mapping[str, PodRecord],
    present: Iterable[ObservedPod],
    departed: Iterable[ObservedPod],
    now: float,
    looked_until: float,
) -> list[PodRecord]:
    """Return the records to write so that :func:`are_recorded` holds.

    Args:
        job: The job; a pod whose rank it does not know has rank -1.
        attempt: The attempt of the pods.
        runs: The existing records, by uid.
        present: The pods that exist.
        departed: The last states of pods that were observed to be deleted.
        now: The end of a pod that does not say when it ended.
        looked_until: When the cluster was last observed before now. A pod that was deleted
            unobserved is charged until then.
    """
    made, seen = [], set[str]()
    looks = [(pod, True) for pod in departed] + [(pod, False) for pod in present]
    for number, (pod, gone) in enumerate(looks):
        seen.add(pod.uid)
        before, rank = runs.get(pod.uid), job.rank_of(pod.task, pod.index)
        if not _is_recorded(before, pod, gone=gone):
            place = (job.id, attempt, -1 if rank is None else rank)
            # Departed pods come first: the last pod of a rank decides how the rank ended.
            seen_at = now + number * _A_MOMENT_SECONDS if before is None else before.seen_at
            run = _run(place, pod, gone=gone, now=now, seen_at=seen_at, before=before)
            made.append(run)
    return made + [
        _vanished(run, looked_until)
        for uid, run in runs.items()
        if uid not in seen and run.ended_at is None
    ]


def _run(
    place: tuple[str, int, int],
    pod: ObservedPod,
    *,
    gone: bool,
    now: float,
    seen_at: float,
    before: PodRecord | None,
) -> PodRecord:
    job_id, attempt, rank = place
    ended_at = _end(pod, gone=gone, now=now, before=before)
    if before is not None and _is_older(pod, before):
        return replace(before, ended_at=ended_at)
    exit_code, signal = _exit(pod, before)
    return PodRecord(
        job_id=job_id,
        pod_uid=pod.uid,
        attempt=attempt,
        rank=rank,
        task=pod.task,
        index=pod.index,
        pod=pod.name,
        node=pod.node,
        phase=pod.phase,
        reason=_reason(pod, before),
        message=_message(pod),
        exit_code=exit_code,
        signal=signal,
        seen_at=seen_at,
        started_at=_started_at(pod, before),
        ended_at=ended_at,
        retry=pod.retry,
        memory_limit=pod.memory_limit,
    )


def _end(pod: ObservedPod, *, gone: bool, now: float, before: PodRecord | None) -> float | None:
    if pod.ended is not None and pod.ended.finished_at is not None:
        return pod.ended.finished_at
    if not gone and not pod.is_over:
        return None
    if before is not None and before.ended_at is not None:
        return before.ended_at
    if pod.lost and pod.due_to_end_at is not None:
        # By the API server's clock, as the judgement that the pod is lost: this machine's may be
        # behind. The server's is the one that nodes, which tell when pods begin, are near to.
        now = pod.due_to_end_at
    if gone and (since := _gone_since(pod)) is not None:
        now = min(now, since)
    return max(now, _started_at(pod, before) or now)


def _gone_since(pod: ObservedPod) -> float | None:
    """Return since when *pod* may be gone; None if it went when that was observed."""
    if pod.unseen_since is not None:
        # The pod was deleted unobserved. It certainly ran until the last observation, and until its
        # deletion was requested.
        return max(pod.unseen_since, pod.asked_to_end_at or 0.0)
    # Without a grace period the pod is gone when the deletion is requested, however late the watch
    # reports it: the connection may have been silent.
    return None if pod.had_time else pod.asked_to_end_at


def _vanished(run: PodRecord, looked_until: float) -> PodRecord:
    at = max(run.started_at or run.seen_at, looked_until)
    values: dict[str, Any] = {name: getattr(run, name) for name in PodRecord.__slots__}
    return PodRecord(**values | {"ended_at": at, "reason": run.reason or "Vanished"})


def _reason(pod: ObservedPod, before: PodRecord | None) -> str:
    taken = before is not None and before.reason in EVICTIONS and pod.deleting
    if before is not None and taken and not pod.was_evicted:
        return before.reason
    reason = pod.reason or pod.disrupted or (pod.ended.reason if pod.ended else "")
    if not reason and pod.unprepared is not None:
        reason = INIT + pod.unprepared[0]
    return reason[:64]


def _message(pod: ObservedPod) -> str:
    """Return the cluster's message about the pod, else the last output of the failed program."""
    unprepared = pod.unprepared[1] if pod.unprepared is not None else ""
    said = pod.message or pod.disruption or unprepared
    return said or (pod.ended.message if pod.ended is not None else "")


# The recorded state of the program stays: the kubelet may no longer report it for an evicted pod,
# or for a pod that its node has lost.


def _exit(pod: ObservedPod, before: PodRecord | None) -> tuple[int | None, int | None]:
    """Return the exit code, and the signal."""
    said = pod.ended or before
    return (None, None) if said is None else (said.exit_code, said.signal)


def _started_at(pod: ObservedPod, before: PodRecord | None) -> float | None:
    if pod.started_at is None and before is not None:
        return before.started_at
    return pod.started_at


def are_final(runs: Collection[PodRecord]) -> bool:
    """Return whether no more events of the programs of an attempt's pods are outstanding.

    Either one program is known to have run, or each pod failed before its program started and can
    start none any more. Volcano counts a job with such pods as one that ran.
    """
    began = any(run.started_at is not None for run in runs)
    return began or (bool(runs) and all(run.phase in OVER for run in runs))


def age(run: PodRecord) -> tuple[int, float]:
    """Sort key: the earlier of two pods of a replica comes first.

    Volcano's count of restarts precedes the time of the first observation, since the clocks of two
    leaders may differ.
    """
    return run.retry or 0, run.seen_at


def last_of_ranks(runs: Iterable[PodRecord]) -> list[PodRecord]:
    """Return the record of each rank's last pod."""
    last = {run.rank: run for run in sorted(runs, key=age)}
    return list(last.values())


def was_refused(run: PodRecord) -> bool:
    """Return whether a kubelet rejected the pod: it failed, and no program of it has ended.

    Examples: two schedulers assigned the same resources (``OutOfcpu``), a device failed meanwhile
    (``UnexpectedAdmissionError``), or the node's labels changed (``NodeAffinity``). A kubelet that
    has restarted admits its pods anew. So it may also reject a pod whose program runs, and kills it
    (Kubernetes issues 124586 and 133382).
    """
    ended = run.exit_code is not None
    by_itself = run.reason in (DEADLINE, STORAGE_LIMIT) or run.reason.startswith(INIT)
    return run.phase == "Failed" and bool(run.reason) and not (ended or by_itself)


def was_taken(run: PodRecord) -> bool:
    """Return whether the cluster ended the pod, or did not start it; such a pod is not charged."""
    return run.reason in EVICTIONS or was_refused(run)


def exits_of(runs: Sequence[PodRecord]) -> list[dict[str, Any]]:
    """Return how each rank ended, failed ranks first, at most a hundred."""
    ranked = sorted(last_of_ranks(runs), key=lambda run: (run.exit_code == 0, run.rank))
    return [
        {
            "rank": run.rank,
            "exit_code": run.exit_code,
            "signal": run.signal,
            "reason": run.reason,
            "node": run.node,
        }
        for run in ranked[:MOST_EXITS]
    ]
