"""An endless stream of a kind's objects.

The stream begins with all objects, in parts, and continues with each change. It lists all objects
again only if the server no longer has the last version (410 Gone), has or sends an older version,
or does not end the stream in time. After a stream that the server ended, or a lost connection, it
continues from the last version (Kubernetes API concepts, "Efficient detection of changes").

Of several API servers behind one address, one may lag behind. A list that is older than the last
version is requested again for about half a minute. After that it is accepted: etcd was restored.
(Kubernetes API concepts, "Resource versions": versions of one kind can be compared.)
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

STREAM_SECONDS: Final = 75.0
"""How long the server is to keep a stream open. A server whose etcd reports no progress sends no
bookmark while a kind does not change; so the end of the stream shows that the connection lives."""
QUIET_SECONDS: Final = 90.0
"""A connection that is silent for longer is dead."""
SHORT_SECONDS: Final = 5.0
"""A stream that ends sooner did not reach its own timeout: the next one waits a little."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 30.0
MOST_FRUITLESS: Final = 3
"""After so many consecutive streams that fail without an event, all objects are listed again. The
server may be unable to send an event, or its store was restored and is behind."""
MOST_OLDER: Final = 8
"""The most consecutive lists that are refused because they are older than the last version."""
MAX_LINE: Final = 16 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """Some of all existing objects.

    The *first* part begins a list, anew if one has begun before. After the *last* part, objects
    that no part of the list contained are gone.
    """

    objects: tuple[Object, ...]
    first: bool = True
    last: bool = True


@dataclass(frozen=True, slots=True)
class Changed:
    """The object was added or modified."""

    object: Object


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object was deleted or no longer matches the selector; *object* is its last state."""

    object: Object


WatchEvent: TypeAlias = Listed | Changed | Deleted


class Backoff:
    """Pauses that double, with jitter, and are never shorter than the server's ``Retry-After``."""

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
        """Return the pause after *error* ended a stream that *lived* this number of seconds.

        A quiet stream that an idle timeout cuts had no events, but nothing was wrong.
        """
        if lived >= SHORT_SECONDS:
            self.reset()
        return max(self.pause(), error.retry_after_seconds or 0.0)


class WatchConnection:
    """The connection of a watch, which can be replaced by another one."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self._renewed = asyncio.Event()
        self._content: aiohttp.StreamReader | None = None

    def renew(self) -> None:
        """Reconnect the watch at its last version; ``opened`` is set once the server responds.

        A silent connection is otherwise found to be dead only after ``QUIET_SECONDS``. A pause
        after a failure ends too.
        """
        self._renewed.set()
        if self._content is not None:
            self.opened.clear()
            self._content.set_exception(_Renewed())

    async def rest(self, seconds: float) -> None:
        """Return after so many seconds, or as soon as the connection is renewed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._renewed.wait()
        self._renewed.clear()

    def use(self, content: aiohttp.StreamReader) -> None:
        """Set the stream with which the watch continues."""
        self._content = content
        self.opened.set()


class _Renewed(Exception):
    """The connection was replaced."""


def _nobody(_trouble: KubeError | None) -> None:
    return


async def watch(
    kube: Kube,
    kind: Kind,
    *,
    labels: str = "",
    transform: FieldTransform = WHOLE,
    report: Callable[[KubeError | None], None] = _nobody,
    connection: WatchConnection | None = None,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield all objects, then each change; raises nothing but cancellation.

    *report* is called with the error that interrupts the watch, and with None when it continues.
    *transform* reduces each object. *connection* allows to reconnect.
    """
    connection = connection or WatchConnection()
    stream = _Stream(kube, kind, labels, transform, report, connection)
    while True:
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    yield event
        except Expired as error:
            log.info("watch of %s lists again: %s", kind.plural, error)
            # A server whose versions expire at once must not make the watch list without a pause.
            await connection.rest(stream.begin_again(error))
        except KubeError as error:
            report(error)
            pause = stream.pause_after(error)
            log.warning("watch of %s failed: %s; retrying in %.1f s", kind.plural, error, pause)
            await connection.rest(pause)
        else:
            await connection.rest(stream.pause_after_end())


class _Stream:
    """The state of one watch."""

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        labels: str,
        transform: FieldTransform,
        report: Callable[[KubeError | None], None],
        connection: WatchConnection,
    ) -> None:
        self._kube = kube
        self._connection = connection
        self._kind, self._path = kind, path_of(kind)
        self._labels = labels
        self._report = report
        self._transform = transform
        self._list_parts = partial(kube.parts, kind, labels=labels, transform=transform)
        self._clock = asyncio.get_running_loop().time
        self._backoff = Backoff()
        self._older_backoff = Backoff()  # newer versions in between do not reset it
        self._floor, self._older = "", 0
        """The version that a list must reach, and how many consecutive lists did not."""
        self._version: str | None = None
        self._expired_lists = 0
        self._fruitless = 0
        self._opened = inf
        self._was_quiet = False
        """Whether the last stream ended in time, but without an event."""
        self._heard = False
        """Whether the stream has sent an event."""

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes; first all objects if the last version is not known.

        Raises:
            Expired: If the server no longer has the last version.
            KubeError: If the watch is interrupted.
        """
        self._opened = inf
        if self._version is None:
            async with aclosing(self._list()) as listing:
                async for some in listing:
                    yield some
        elif self._was_quiet:
            await self._check_store(self._version)
        self._heard = False
        async with aclosing(self._changes(self._version or "")) as changes:
            async for change, seen in changes:
                if _is_older(seen, self._version or ""):
                    raise _WentBack("it sent a version that is older than an earlier one")
                # The first event only shows that the stream is open: it may be quiet for long.
                self._opened = min(self._opened, self._clock())
                self._report(None)
                if change is not None or seen != self._version:
                    self._fruitless, self._heard = 0, True
                if seen != self._version:
                    self._backoff.reset()
                    self._version = seen
                if change is not None:
                    yield change

    async def _check_store(self, version: str) -> None:
        """Raise Expired if the server is behind *version*: its store was restored.

        It sends nothing then until it has reached the version.
        """
        if _is_older(await self._kube.version_of(self._kind), version):
            raise _WentBack("its store is older than the last version")
        self._was_quiet = False

    def begin_again(self, error: Expired) -> float:
        """Have all objects listed after *error*; return how many seconds to wait."""
        self._expired_lists += self._version is None
        self._floor = self._version or self._floor
        self._version = None
        backoff = self._older_backoff if isinstance(error, _WentBack) else self._backoff
        return backoff.after(error, lived=self._clock() - self._opened)

    def pause_after(self, error: KubeError) -> float:
        """Return how many seconds to wait after *error*; after too many, list all objects."""
        if self._opened < inf and not _was_cut(error):
            self._fruitless += 1
        if self._fruitless >= MOST_FRUITLESS:
            log.info("watch of %s lists again: nothing follows the last version", self._path)
            self._version, self._floor, self._fruitless = None, "", 0
        return self._backoff.after(error, lived=self._clock() - self._opened)

    def pause_after_end(self) -> float:
        """Return how many seconds to wait after a stream that the server ended."""
        if self._clock() - self._opened < SHORT_SECONDS:
            return self._backoff.pause()
        self._was_quiet = not self._heard
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
                    self._report(None)
                yield Listed(tuple(part.objects), first=first, last=part.is_last)
                first = False

    def _refuse_older(self, version: str) -> None:
        """Raise Unavailable if a list of this *version* is older than the last version."""
        if self._older < MOST_OLDER and _is_older(version, self._floor):
            self._older += 1
            raise Unavailable("the API server sent a list that is older than its watch")

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
            return None, version  # BOOKMARK, or a type of a later Kubernetes version


class _WentBack(Expired):
    """The watch sent an older version."""


def _is_older(version: str, other: str) -> bool:
    """Return whether *version* is older; versions that are not numbers are not compared."""
    numbers = version.isdecimal() and other.isdecimal()
    return numbers and int(version) < int(other)


def _was_cut(error: KubeError) -> bool:
    """Return whether *error* is a lost connection, as opposed to a silent one."""
    cause = error.__cause__
    return isinstance(cause, aiohttp.ClientError | OSError) and not isinstance(cause, TimeoutError)


def _error(status: Object) -> KubeError:
    """Return the error that ended the watch; without a code it counts as a server error."""
    code = status.get("code")
    return error_from(code if isinstance(code, int) else 500, status)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # Not content.readline(): its limit is below the size of large objects.
    pending = bytearray()
    async for piece in content.iter_any():
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = bytes(pending) + lines[0]
            pending.clear()
        pending += rest
        if len(pending) > MAX_LINE:
            raise Unavailable("the watch sent a line that is too long")
        for line in lines:
            if line.strip():
                yield line
