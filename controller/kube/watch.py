"""A stream of a kind's objects that never ends.

It begins with all of them, and then says what changed. It begins again, with all of them, only when
the server has forgotten what was last seen (410 Gone); a stream that the server ended, or a
connection that was cut, goes on where it was. (Kubernetes API concepts, "Efficient detection of
changes".)
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

import aiohttp

from controller.kube.client import Kube
from controller.kube.decoding import Object, check_object, decode_object
from controller.kube.errors import Expired, KubeError, Unavailable, error_from
from controller.kube.kinds import Kind

STREAM_SECONDS: Final = 240.0
QUIET_SECONDS: Final = 90.0
"""Bookmarks come about every minute; a connection that is silent for longer is dead."""
SHORT_SECONDS: Final = 5.0
"""A stream that ends sooner was not ended by its own timeout: the next one waits a little."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 30.0
MAX_LINE: Final = 16 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """These are all objects; whatever is not among them is gone."""

    objects: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """This object was added or modified."""

    object: Object


@dataclass(frozen=True, slots=True)
class Deleted:
    """This object is gone, or no longer matches the selector; this is how it was last."""

    object: Object


WatchEvent: TypeAlias = Listed | Changed | Deleted


class Backoff:
    """Pauses that double, with jitter, and never come earlier than the server asked for."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._next = FIRST_PAUSE_SECONDS

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._next = FIRST_PAUSE_SECONDS

    def pause(self) -> float:
        """Return how many seconds to wait."""
        pause = self._uniform(self._next / 2, self._next)
        self._next = min(2 * self._next, LONGEST_PAUSE_SECONDS)
        return pause

    def after(self, error: KubeError, *, lived: float = 0.0) -> float:
        """Return how many seconds to wait after *error*, which ended what *lived* so long.

        Of a quiet stream that an idle timeout cuts, nothing came, and nothing was wrong.
        """
        if lived >= SHORT_SECONDS:
            self.reset()
        return max(self.pause(), error.retry_after_seconds or 0.0)


def _nobody(_trouble: KubeError | None) -> None:
    return


async def watch(
    kube: Kube,
    kind: Kind,
    *,
    namespace: str | None = None,
    labels: str = "",
    told: Callable[[KubeError | None], None] = _nobody,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield all objects, then each change; raises nothing but cancellation.

    *told* is called with what keeps it from going on, and with None once it does go on.
    """
    backoff, clock = Backoff(), asyncio.get_running_loop().time
    version: str | None = None
    while True:
        began, opened = clock(), inf
        try:
            if version is None:
                objects, version = await kube.list_at(kind, namespace, labels=labels)
                told(None)
                yield Listed(tuple(objects))
            began = clock()
            stream = _stream(kube, kind, namespace, labels, version)
            async with aclosing(stream):
                async for change, seen in stream:
                    opened = min(opened, clock())
                    told(None)
                    if seen != version:
                        backoff.reset()
                        version = seen
                    if change is not None:
                        yield change
        except Expired as error:
            log.info("watch of %s begins again: what was last seen is forgotten", kind.plural)
            version = None
            # A server that forgets at once must not be made to list for ever.
            await asyncio.sleep(backoff.after(error, lived=clock() - opened))
        except KubeError as error:
            told(error)
            pause = backoff.after(error, lived=clock() - opened)
            log.warning("watch of %s: %s; again in %.1f s", kind.plural, error, pause)
            await asyncio.sleep(pause)
        else:
            if clock() - began >= SHORT_SECONDS:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.pause())


async def _stream(
    kube: Kube, kind: Kind, namespace: str | None, labels: str, version: str
) -> AsyncGenerator[tuple[WatchEvent | None, str], None]:
    """Yield changes after *version* with the version of each, until the stream ends.

    The first says only that the stream is open: nothing may happen for long.
    """
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(int(STREAM_SECONDS)),
    }
    query |= {"labelSelector": labels} if labels else {}
    path = kind.path(namespace)
    async with kube.stream(path, query, quiet_seconds=QUIET_SECONDS) as content:
        yield None, version
        async for line in _lines(content):
            yield _read(line)


def _read(line: bytes) -> tuple[WatchEvent | None, str]:
    event = decode_object(line)
    kind, thing = event.get("type"), event.get("object", {})
    if kind == "ERROR":
        raise _error(thing)
    check_object(thing)
    version = thing["metadata"].get("resourceVersion")
    if not isinstance(version, str):
        raise Unavailable("the watch sent an object without a version")
    match kind:
        case "ADDED" | "MODIFIED":
            return Changed(thing), version
        case "DELETED":
            return Deleted(thing), version
        case _:
            return None, version  # BOOKMARK, and what may come later


def _error(status: object) -> KubeError:
    """Return the error that the watch ends with; one that says nothing is the server's."""
    said = status if isinstance(status, dict) else {}
    code = said.get("code")
    return error_from(code if isinstance(code, int) else 500, said)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # Not content.readline(): its limit is smaller than what an object may have.
    pending = bytearray()
    async for piece in content.iter_any():
        pending += piece
        *lines, rest = bytes(pending).split(b"\n")
        pending = bytearray(rest)
        if len(pending) > MAX_LINE:
            raise Unavailable("the watch sent a line without end")
        for line in lines:
            if line.strip():
                yield line
