"""Translates exceptions of redis-py to BusUnavailable: with a reason, without the command."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import BusUnavailable

_ENDED = "Connection closed by server."
"""redis-py's message if the server closed an open connection."""
_NOT_SAVED: Final = "MISCONF"
"""The error code of a Redis that cannot save its data, with stop-writes-on-bgsave-error."""
_WORDS: Final[Mapping[type, str]] = {
    AuthenticationError: "it does not take this user with this password",
    NoPermissionError: "this user may not do this there",
    OutOfMemoryError: "it is out of memory",
    ReadOnlyError: "it is a replica, and takes no writes",
    BusyLoadingError: "it is still loading its data",
}
_OTHERWISE: Final[Mapping[type, str]] = {
    RedisTimeoutError: "it does not respond in time",
    TimeoutError: "it does not respond in time",
}
"""Used if no cause says more."""
_NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Raised by redis-py for a response that is malformed or does not fit the command."""


class NotServed(RedisConnectionError):
    """A connection was given up; the message is the reason for people."""


class SlotMigrating(NotServed):
    """The slot's keys are on their way to another node; no node has executed the command."""


class translated:  # noqa: N801  # reads as a statement
    """Translates exceptions of redis-py to BusUnavailable, without the command.

    Also restores lost cancellations: redis-py sends with ``asyncio.wait_for``, which before Python
    3.12 swallows a cancellation that arrives just as the call completes.
    """

    def __enter__(self) -> None:
        self._cancelling = _cancel_requests()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if _cancel_requests() > self._cancelling and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error
        if isinstance(error, (RedisError, OSError, TimeoutError, *_NONSENSE)):
            raise unavailable(error) from error


def unavailable(error: BaseException) -> BusUnavailable:
    """Return what to raise for *error*, also for that of a deadline of the caller's own."""
    return BusUnavailable(f"Redis did not answer: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return why there was no response, without the command, which may hold a password."""
    for one in _with_causes(error):
        match one:
            case NotServed():
                return str(one)
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted: {one.verify_message}"
            case ssl.SSLError():
                return f"no TLS with it: {one.reason}"
            case RedisError() if type(one) in _WORDS:
                return _WORDS[type(one)]
            case ResponseError() if _NOT_SAVED in str(one):
                return "it takes no writes, as it cannot save to its disk"
            case ConnectionAbortedError() if one.strerror is None:
                # Raised by asyncio, and the only one without an errno.
                return "no TLS with it: nobody answered the handshake"
            case OSError() if one.strerror:
                return one.strerror
            case RedisConnectionError() if str(one) == _ENDED:
                return "it ended the connection"
            case _:
                pass
    return _OTHERWISE.get(type(error), type(error).__name__)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
