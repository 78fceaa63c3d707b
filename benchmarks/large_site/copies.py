"""Many copies of one job: its VolcanoJob and pods as JSON, and its rows in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from benchmarks.large_site.shapes import as_stored
from controller.kube.client import path_of
from controller.kube.kinds import PODS, VCJOBS
from controller.store import tables
from controller.store.database import Store

MODEL: Final = "model-00000"
_VERSION: Final = "version-of-copies"
_PATHS: Final = frozenset({path_of(PODS), path_of(VCJOBS)})
_TABLES: Final = (
    tables.jobs,
    tables.job_labels,
    tables.attempts,
    tables.runs,
    tables.hooks,
    tables.due,
    tables.companions,
)
_AT_ONCE: Final = 500
_SPREAD_SECONDS: Final = 3600.0


class Copies:
    """*count* copies of the job and its pods, made on demand."""

    def __init__(self, job: dict[str, Any], pods: Sequence[dict[str, Any]], count: int) -> None:
        self._pods_each = len(pods)
        self._count = count
        self._uids = [one["metadata"]["uid"] for one in (job, *pods)]
        self._texts = {
            VCJOBS.plural: [_text_of(job)],
            PODS.plural: [_text_of(as_stored(pod)) for pod in pods],
        }
        self._changed: set[int] = set()

    @property
    def bytes_each(self) -> int:
        """How long a pod's JSON is."""
        return len(self._texts[PODS.plural][0])

    def shows(self, path: str) -> bool:
        """Return whether the collection at *path* holds copies."""
        return path in _PATHS

    def count(self, plural: str) -> int:
        """Return how many copies of a kind there are."""
        return self._count * len(self._texts[plural])

    def job_of(self, pod: int) -> str:
        """Return the id of the job that a pod belongs to."""
        return _id(pod // self._pods_each + 1)

    def change(self, pod: int) -> None:
        """Set whether a pod is ready."""
        self._changed ^= {pod}

    def text(self, plural: str, number: int, version: str = "1") -> bytes:
        """Return a copy."""
        texts = self._texts[plural]
        copy, which = divmod(number, len(texts))
        text = texts[which].replace(MODEL.encode(), _id(copy + 1).encode())
        for uid in self._uids:
            text = text.replace(uid.encode(), _uid(uid, copy + 1).encode())
        if plural == PODS.plural and number in self._changed:
            text = text.replace(b'"ready":true', b'"ready":false')
        return text.replace(_VERSION.encode(), version.encode())

    async def write_rows(self, store: Store) -> None:
        """Write the rows of all copies, like those of the existing job."""
        async with store.read() as transaction:
            rows = {
                table: [
                    dict(row._mapping)
                    for row in await transaction.execute(sa.select(table).where(_of_model(table)))
                ]
                for table in _TABLES
            }
        for first in range(1, self._count + 1, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, self._count + 1))
            async with store.write() as transaction:
                for table, model in rows.items():
                    copies = [self._row(row, n) for n in numbers for row in model]
                    if copies:
                        await transaction.execute(sa.insert(table), copies)

    def _row(self, row: Mapping[str, Any], number: int) -> dict[str, Any]:
        copied = {name: self._value(value, number) for name, value in row.items()}
        if "plugin" in row and "hook" not in row:
            copied["at"] += _SPREAD_SECONDS * number / self._count  # not all due at once
        return copied

    def _value(self, value: Any, number: int) -> Any:
        match value:
            case str():
                for uid in self._uids:
                    value = value.replace(uid, _uid(uid, number))
                return value.replace(MODEL, _id(number))
            case dict():
                return {name: self._value(one, number) for name, one in value.items()}
            case list():
                return [self._value(one, number) for one in value]
            case _:
                return value


def _of_model(table: sa.Table) -> sa.ColumnElement[bool]:
    return (table.c.job_id if "job_id" in table.c else table.c.id) == MODEL


def _id(number: int) -> str:
    return f"{MODEL[:-5]}{number:05}"


def _uid(uid: str, number: int) -> str:
    return f"{uid[:-8]}{number:08x}"


def _text_of(given: dict[str, Any]) -> bytes:
    metadata = given["metadata"] | {"resourceVersion": _VERSION}
    return json.dumps(given | {"metadata": metadata}, separators=(",", ":")).encode()
