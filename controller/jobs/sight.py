"""A job as it is: in the store and in the cluster, at one moment."""

from __future__ import annotations

from typing import Final

from controller.jobs.lifecycle import Seen
from controller.jobs.picture import Picture
from controller.jobs.pipeline import Pipeline
from controller.store.database import Store
from controller.store.jobs import find_job
from controller.store.progress import companions_of, hooks_done

_NOTHING: Final[frozenset[str]] = frozenset()


class Sight:
    """Looks at jobs.

    Args:
        store: What was asked for, and what was done.
        picture: What is.
        pipeline: Says when a hook is done.
    """

    def __init__(self, store: Store, picture: Picture, pipeline: Pipeline) -> None:
        self._store = store
        self._picture = picture
        self._pipeline = pipeline

    async def see(self, job_id: str) -> Seen | None:
        """Return the job as it is; None where the store does not know it.

        Raises:
            StoreUnavailable: If the store cannot be read.
        """
        async with self._store.read() as transaction:
            record = await find_job(transaction, job_id)
            if record is None:
                return None
            # Only what can matter: most looks are at jobs that wait, or that are over.
            acts = record.uid is not None and not record.is_final
            companions = await companions_of(transaction, job_id) if acts else []
            acts = record.state == "RUNNING" or record.outcome is not None
            done = await hooks_done(transaction, job_id, record.attempt) if acts else {}
        return Seen(
            record=record,
            job=self._picture.job(record.namespace, job_id),
            pods=self._picture.pods.of_job(job_id),
            exposed=all(one.owner_uid == record.uid for one in companions),
            started=self._pipeline.is_done(done.get("start", _NOTHING)),
            completed=self._pipeline.is_done(done.get("complete", _NOTHING)),
            cleaned=self._pipeline.is_done(done.get("cleanup", _NOTHING)),
        )
