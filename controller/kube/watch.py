"""A stream of a kind's objects that never ends.

It begins with all of them, in parts, and then says what changed. It begins again, with all of
them, only when the server has forgotten what was last seen (410 Gone), says what is older than
that, or nothing follows it any more; a stream that the server ended, or a connection that was cut,
goes on where it was. (Kubernetes API concepts, "Efficient detection of changes".)

Of several API servers behind one address one may lag behind. A list that is older than what was
last seen is asked for again, for about half a minute; then it is the truth, of an etcd that was
restored. (Kubernetes API concepts, "Resource versions": versions of one kind can be compared.)
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, TypeAlias

import aiohttp

from controller.kube.client import PAGED_LISTS, Kube, path_of
from controller.kube.decoding import WHOLE, FieldTransform, Object, decode_line, decode_object
from controller.kube.errors import Expired, KubeError, Unavailable, error_from
from controller.kube.kinds import Kind

STREAM_SECONDS: Final = 240.0
QUIET_SECONDS: Final = 90.0
"""Bookmarks come about every minute; a connection that is silent for longer is dead."""
SHORT_SECONDS: Final = 5.0
"""A stream that ends sooner was not ended by its own timeout: the next one waits a little."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 30.0
MOST_FRUITLESS: Final = 3
"""Streams in a row that fail by themselves without one event: then everything is listed anew. The
server may have an event that it cannot send, or a store that was restored and is behind."""
MOST_OLDER: Final = 8
"""Lists in a row that are older than what was last seen."""
MAX_LINE: Final = 16 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """Some of all the objects that there are.

    With the *first* a list begins, anew where one has begun before; after the *last*, whatever was
    in none of its parts is gone.
    """

    objects: tuple[Object, ...]
    first: bool = True
    last: bool = True


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


class WatchConnection:
    """The connection of a watch, which can be given up for another one."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self._renewed = asyncio.Event()
        self._content: aiohttp.StreamReader | None = None

    def renew(self) -> None:
        """Have the watch go on from where it was; ``opened`` is set once the server answers.

        Whether a connection on which nothing comes is dead is found out only after
        ``QUIET_SECONDS``. A pause after a failure ends, too.
        """
        self._renewed.set()
        if self._content is not None:
            self.opened.clear()
            self._content.set_exception(_Renewed())

    async def rest(self, seconds: float) -> None:
        """Return after so long, or once the connection is renewed or was just now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._renewed.wait()
        self._renewed.clear()

    def use(self, content: aiohttp.StreamReader) -> None:
        """Take note that the watch goes on with *content*."""
        self._content = content
        self.opened.set()


class _Renewed(Exception):
    """The connection was given up."""


def _nobody(_trouble: KubeError | None) -> None:
    return


async def watch(
    kube: Kube,
    kind: Kind,
    *,
    labels: str = "",
    transform: FieldTransform = WHOLE,
    told: Callable[[KubeError | None], None] = _nobody,
    connection: WatchConnection | None = None,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield all objects, then each change; raises nothing but cancellation.

    *told* is called with what keeps it from going on, and with None once it does go on. Of each
    object *transform* says what is kept. By *connection* it is had to open another one.
    """
    connection = connection or WatchConnection()
    stream = _Stream(kube, kind, labels, transform, told, connection)
    while True:
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    yield event
        except Expired as error:
            log.info("watch of %s begins again: %s", kind.plural, error)
            # A server that forgets at once must not be made to list for ever.
            await connection.rest(stream.begin_again(error))
        except KubeError as error:
            told(error)
            pause = stream.pause_after(error)
            log.warning("watch of %s: %s; again in %.1f s", kind.plural, error, pause)
            await connection.rest(pause)
        else:
            await connection.rest(stream.pause_after_end())


class _Stream:
    """What is followed, and how far."""

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        labels: str,
        transform: FieldTransform,
        told: Callable[[KubeError | None], None],
        connection: WatchConnection,
    ) -> None:
        self._kube = kube
        self._connection = connection
        self._path = path_of(kind)
        self._labels = labels
        self._told = told
        self._transform = transform
        self._list_parts = partial(kube.parts, kind, labels=labels, transform=transform)
        self._clock = asyncio.get_running_loop().time
        self._backoff = Backoff()
        self._older_backoff = Backoff()  # what is newer in between does not reset it
        self._floor, self._older = "", 0
        """What a list must not be older than, and how many in a row were."""
        self._version: str | None = None
        self._expired_lists = 0
        self._fruitless = 0
        self._opened = inf

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield what has changed, first of all the objects where that is not known.

        Raises:
            Expired: If the server has forgotten what was last seen.
            KubeError: If it does not go on.
        """
        self._opened = inf
        if self._version is None:
            async with aclosing(self._list()) as listing:
                async for some in listing:
                    yield some
        async with aclosing(self._changes(self._version or "")) as changes:
            async for change, seen in changes:
                if _is_older(seen, self._version or ""):
                    raise _WentBack("it says what is older than what it said before")
                # The first says only that it is open: nothing may happen for long.
                self._opened = min(self._opened, self._clock())
                self._told(None)
                if change is not None or seen != self._version:
                    self._fruitless = 0
                if seen != self._version:
                    self._backoff.reset()
                    self._version = seen
                if change is not None:
                    yield change

    def begin_again(self, error: Expired) -> float:
        """Have all objects listed, since *error* came; return how many seconds to wait."""
        self._expired_lists += self._version is None
        self._floor = self._version or self._floor
        self._version = None
        backoff = self._older_backoff if isinstance(error, _WentBack) else self._backoff
        return backoff.after(error, lived=self._clock() - self._opened)

    def pause_after(self, error: KubeError) -> float:
        """Return how many seconds to wait after *error*; too many in vain, and it begins again."""
        if self._opened < inf and not _was_cut(error):
            self._fruitless += 1
        if self._fruitless >= MOST_FRUITLESS:
            log.info("watch of %s begins again: nothing follows what was last seen", self._path)
            self._version, self._floor, self._fruitless = None, "", 0
        return self._backoff.after(error, lived=self._clock() - self._opened)

    def pause_after_end(self) -> float:
        """Return how many seconds to wait after a stream that the server ended."""
        if self._clock() - self._opened < SHORT_SECONDS:
            return self._backoff.pause()
        self._backoff.reset()
        return 0.0

    async def _list(self) -> AsyncGenerator[Listed, None]:
        first = True
        paged = self._expired_lists < PAGED_LISTS
        async with aclosing(self._list_parts(paged=paged)) as parts:
            async for part in parts:
                if part.is_last and not part.version:
                    raise Unavailable("the API server sent a list without a version")
                self._refuse_older(part.version)
                if part.is_last:
                    self._version, self._expired_lists = part.version, 0
                    self._floor, self._older = "", 0
                    self._told(None)
                yield Listed(tuple(part.objects), first=first, last=part.is_last)
                first = False

    def _refuse_older(self, version: str) -> None:
        """Raise Unavailable if a list of this *version* is older than what was last seen."""
        if self._older < MOST_OLDER and _is_older(version, self._floor):
            self._older += 1
            raise Unavailable("the API server sent a list that is older than what its watch said")

    async def _changes(self, version: str) -> AsyncGenerator[tuple[WatchEvent | None, str], None]:
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(STREAM_SECONDS)),
        }
        query |= {"labelSelector": self._labels} if self._labels else {}
        with suppress(_Renewed):
            async with self._kube.stream(self._path, query, quiet_seconds=QUIET_SECONDS) as content:
                self._connection.use(content)
                yield None, version
                async for line in _lines(content):
                    yield _read(line, self._transform)


def _read(text: bytes, transform: FieldTransform) -> tuple[WatchEvent | None, str]:
    line = decode_line(text)
    if line.type == "ERROR":
        raise _error(decode_object(bytes(line.object)))
    thing = transform.decode(line.object)
    version = thing["metadata"].get("resourceVersion")
    if not isinstance(version, str):
        raise Unavailable("the watch sent an object without a version")
    match line.type:
        case "ADDED" | "MODIFIED":
            return Changed(thing), version
        case "DELETED":
            return Deleted(thing), version
        case _:
            return None, version  # BOOKMARK, and what may come later


class _WentBack(Expired):
    """The watch sent what is older than what was seen."""


def _is_older(version: str, other: str) -> bool:
    """Say whether *version* is known to be older; those that are no numbers are not compared."""
    numbers = version.isdecimal() and other.isdecimal()
    return numbers and int(version) < int(other)


def _was_cut(error: KubeError) -> bool:
    """Say whether *error* is of a connection that was whole until it broke: it was not silent."""
    cause = error.__cause__
    return isinstance(cause, aiohttp.ClientError | OSError) and not isinstance(cause, TimeoutError)


def _error(status: Object) -> KubeError:
    """Return the error that the watch ends with; one that says nothing is the server's."""
    code = status.get("code")
    return error_from(code if isinstance(code, int) else 500, status)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # Not content.readline(): its limit is smaller than what an object may have.
    pending = bytearray()
    async for piece in content.iter_any():
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = bytes(pending) + lines[0]
            pending.clear()
        pending += rest
        if len(pending) > MAX_LINE:
            raise Unavailable("the watch sent a line without end")
        for line in lines:
            if line.strip():
                yield line
