"""Watches: what a client that follows a kind is sent, and when its stream ends."""

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
"""A client that falls further behind than this is cut off, and lists again."""

_BOOKMARK_SECONDS: Final = 10.0
_INITIAL_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a watch asks for."""

    namespace: str
    selected: Predicate
    revision: int
    """What the client has seen; 0 is nothing."""

    initial: bool
    """Whether what there is comes first, and a bookmark that says so after it."""

    seconds: float
    bookmarks: bool


async def follow(store: Store, kind: Kind, asked: Asked) -> AsyncGenerator[tuple[str, Stored]]:
    """Yield change and object for everything that *asked* selects, until its time is over.

    Raises:
        ApiError: 410 if its revision is too old; by then the answer has begun, so that the
            caller sends it as an ERROR event.
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
    """Yield what is due at once: everything there is, or what came after a revision."""
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
    # A revision of the future is waited for: nothing before it is sent.
    first = 0 if asked.initial else asked.revision
    while (left := end - loop.time()) > 0 and not queue.full():
        try:
            async with asyncio.timeout(min(left, _BOOKMARK_SECONDS)):
                event = await queue.get()
        except TimeoutError:
            # What came together with the timeout is not sent yet, and might never be.
            if asked.bookmarks and queue.empty():
                yield "BOOKMARK", _bookmark(kind, store.revision)
            continue
        if event.revision > first:
            for change in _seen(event, asked):
                yield change


def _seen(event: Event, asked: Asked) -> Iterator[tuple[Change, Stored]]:
    """Yield *event* as it looks through the selector: leaving it is a DELETED."""
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
    """Return one line of a watch's answer."""
    return b'{"type":"%s","object":%s}\n' % (change.encode(), raw)


def error_line(error: ApiError) -> bytes:
    """Return the line that a watch ends with when it cannot go on."""
    return line("ERROR", msgspec.json.encode(error.status))


def lifetime(asked_seconds: float | None, chance: random.Random) -> float:
    """Return for how long a watch lives: what was asked, or less when the seed says so."""
    longest = chance.uniform(1800, 3600) if asked_seconds is None else asked_seconds
    return min(longest, chance.uniform(1, 20)) if chance.random() < 0.2 else longest


def _bookmark(kind: Kind, revision: int, annotations: Object | None = None) -> Stored:
    metadata: Object = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return Stored.of({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
