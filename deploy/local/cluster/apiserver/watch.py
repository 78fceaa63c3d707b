"""Watches: the events for a client that follows a kind, and when its stream ends."""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from deploy.local.cluster.apiserver.errors import ApiError, expired
from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.apiserver.selectors import Predicate
from deploy.local.cluster.apiserver.store import Change, Event, Key, Store, Stored

_QUEUE: Final = 10_000
"""A client that is further behind than this is cut off, and lists again."""

_BOOKMARK_SECONDS: Final = 10.0
_INITIAL_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a watch."""

    namespace: str
    selected: Predicate
    revision: int
    """The revision that the client has seen; 0 means none."""

    initial: bool
    """Whether the present objects come first, followed by a bookmark."""

    seconds: float
    bookmarks: bool


async def follow(store: Store, kind: Kind, asked: Asked) -> AsyncGenerator[tuple[str, Stored]]:
    """Yield change and object for everything that *asked* selects, until its time is over.

    Raises:
        ApiError: 410 if its revision is too old. The response has begun by then, so the caller
            sends the error as an ERROR event.
    """
    queue: asyncio.Queue[Event] = asyncio.Queue(_QUEUE)

    def hear(key: Key, event: Event) -> None:
        if key == kind.key and not queue.full():
            queue.put_nowait(event)

    stop = store.listen(hear)
    try:
        for change in _beginning(store, kind, asked):
            yield change
        async for change in _later(store, queue, kind, asked):
            yield change
    finally:
        stop()


def _beginning(store: Store, kind: Kind, asked: Asked) -> Iterator[tuple[str, Stored]]:
    """Yield the events that are due at once: all objects, or the changes after a revision."""
    if asked.revision == 0 or asked.initial:
        for stored in store.items(kind.key, asked.namespace):
            if asked.selected(stored.value):
                yield "ADDED", stored
        if asked.initial:
            yield "BOOKMARK", _bookmark(kind, store.revision, {_INITIAL_END: "true"})
        return
    missed = store.since(kind.key, asked.revision)
    if missed is None:
        raise expired(asked.revision, store.oldest(kind.key))
    for event in missed:
        yield from _seen(event, asked)


async def _later(
    store: Store, queue: asyncio.Queue[Event], kind: Kind, asked: Asked
) -> AsyncGenerator[tuple[str, Stored]]:
    loop = asyncio.get_running_loop()
    end = loop.time() + asked.seconds
    # A watch waits for a revision that does not exist yet: no earlier change is sent.
    first = 0 if asked.initial else asked.revision
    while (left := end - loop.time()) > 0 and not queue.full():
        try:
            async with asyncio.timeout(min(left, _BOOKMARK_SECONDS)):
                event = await queue.get()
        except TimeoutError:
            # An event that arrived together with the timeout is not sent yet, and might be lost.
            if asked.bookmarks and queue.empty():
                yield "BOOKMARK", _bookmark(kind, store.revision)
            continue
        if event.revision > first:
            for change in _seen(event, asked):
                yield change


def _seen(event: Event, asked: Asked) -> Iterator[tuple[Change, Stored]]:
    """Yield *event* as the selector shows it: leaving the selection is a DELETED."""
    namespace = event.now.value["metadata"].get("namespace", "")
    if asked.namespace and namespace != asked.namespace:
        return
    was = event.before is not None and asked.selected(event.before.value)
    is_now = event.change != "DELETED" and asked.selected(event.now.value)
    if is_now:
        yield ("MODIFIED" if was else "ADDED"), event.now
    elif was:
        yield "DELETED", event.now


def line(change: str, raw: bytes) -> bytes:
    """Return one line of a watch's response."""
    return b'{"type":"%s","object":%s}\n' % (change.encode(), raw)


def error_line(error: ApiError) -> bytes:
    """Return the last line of a watch that cannot continue."""
    return line("ERROR", msgspec.json.encode(error.status))


def lifetime(asked_seconds: float | None, chance: random.Random) -> float:
    """Return the lifetime of a watch: as requested, or less if the seed says so."""
    longest = chance.uniform(1800, 3600) if asked_seconds is None else asked_seconds
    return min(longest, chance.uniform(1, 20)) if chance.random() < 0.2 else longest


def _bookmark(kind: Kind, revision: int, annotations: Object | None = None) -> Stored:
    metadata: Object = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return Stored.of({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
