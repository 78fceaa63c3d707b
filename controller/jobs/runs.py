"""What is written down of a job's pods, and when that is to be done. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from controller.jobs.model import Job
from controller.store.runs import Run
from controller.volcano.observed import ObservedPod

MOST_EXITS: Final = 100


def are_written_down(
    runs: Mapping[str, Run], present: Iterable[ObservedPod], departed: Iterable[ObservedPod]
) -> bool:
    """Say whether *runs* hold everything that can be seen of these pods.

    A pod that is neither there nor among those that were seen to leave has gone while nobody
    looked: its run must have an end too.
    """
    seen = set()
    for pod in present:
        seen.add(pod.uid)
        if not _is_written_down(runs.get(pod.uid), pod, gone=False):
            return False
    for pod in departed:
        seen.add(pod.uid)
        if not _is_written_down(runs.get(pod.uid), pod, gone=True):
            return False
    return all(run.ended_at is not None for uid, run in runs.items() if uid not in seen)


def _is_written_down(run: Run | None, pod: ObservedPod, *, gone: bool) -> bool:
    if run is None:
        return False
    facts = (run.node, run.phase, run.reason, run.exit_code, run.started_at)
    if facts != (pod.node, pod.phase, _reason(pod), _exit_code(pod), pod.started_at):
        return False
    return (run.ended_at is not None) == (gone or pod.is_over)


def make_runs(
    job: Job,
    attempt: int,
    *,
    runs: Mapping[str, Run],
    present: Iterable[ObservedPod],
    departed: Iterable[ObservedPod],
    now: float,
    looked_until: float,
) -> list[Run]:
    """Return what is to be written down so that :func:`are_written_down`.

    Args:
        job: The job; a pod whose rank it does not know has rank -1.
        attempt: Whose pods these are.
        runs: What is written down, by the pods' uids.
        present: The pods that are there.
        departed: Those that were seen to leave, as they were last.
        now: When one ended that did not say so itself.
        looked_until: When somebody looked last, before now: as long is paid for a pod that has
            gone while nobody did.
    """
    made, seen = [], set[str]()
    for pod, gone in ((pod, gone) for pods, gone in ((present, False), (departed, True))
                      for pod in pods):  # fmt: skip
        seen.add(pod.uid)
        before, rank = runs.get(pod.uid), job.rank_of(pod.task, pod.index)
        if not _is_written_down(before, pod, gone=gone):
            place = (job.id, attempt, -1 if rank is None else rank)
            made.append(_run(place, pod, gone=gone, now=now, before=before))
    return made + [
        _vanished(run, looked_until)
        for uid, run in runs.items()
        if uid not in seen and run.ended_at is None
    ]


def _run(
    place: tuple[str, int, int], pod: ObservedPod, *, gone: bool, now: float, before: Run | None
) -> Run:
    job_id, attempt, rank = place
    return Run(
        job_id=job_id,
        pod_uid=pod.uid,
        attempt=attempt,
        rank=rank,
        task=pod.task,
        index=pod.index,
        pod=pod.name,
        node=pod.node,
        phase=pod.phase,
        reason=_reason(pod),
        message=pod.message,
        exit_code=_exit_code(pod),
        signal=pod.ended.signal if pod.ended else None,
        seen_at=now,
        started_at=pod.started_at,
        ended_at=_end(pod, gone=gone, now=now, before=before),
    )


def _end(pod: ObservedPod, *, gone: bool, now: float, before: Run | None) -> float | None:
    if pod.ended is not None and pod.ended.finished_at is not None:
        return pod.ended.finished_at
    if not gone and not pod.is_over:
        return None
    if before is not None and before.ended_at is not None:
        return before.ended_at
    return max(now, pod.started_at or now)


def _vanished(run: Run, looked_until: float) -> Run:
    at = max(run.started_at or run.seen_at, looked_until)
    values: dict[str, Any] = {name: getattr(run, name) for name in Run.__slots__}
    return Run(**values | {"ended_at": at, "reason": run.reason or "Vanished"})


def _reason(pod: ObservedPod) -> str:
    return (pod.reason or pod.disrupted or (pod.ended.reason if pod.ended else ""))[:64]


def _exit_code(pod: ObservedPod) -> int | None:
    return pod.ended.exit_code if pod.ended else None


def exits_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return how each rank ended, those that failed first, at most a hundred."""
    last = {run.rank: run for run in sorted(runs, key=lambda run: run.seen_at)}
    ranked = sorted(last.values(), key=lambda run: (run.exit_code == 0, run.rank))
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
