"""What redis raises becomes BusUnavailable, with a reason for people and without what was sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Final

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.errors import BusUnavailable

_ENDED = "Connection closed by server."
"""What redis says, of all that it calls a ConnectionError, where there was a connection."""
_NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What redis raises where an answer is not in its protocol, or not one to what was asked."""


class NotServed(RedisConnectionError):
    """A connection that was given up, for a reason that is in our words: for people as it is."""


class translated:  # noqa: N801  # reads as a statement
    """Turns what redis raises into BusUnavailable, without what was sent.

    And lets no cancellation be lost: redis sends with ``asyncio.wait_for``, which before Python
    3.12 returns as if nothing had happened when it is cancelled just as it is done.
    """

    def __enter__(self) -> None:
        self._cancelling = _cancel_requests()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if _cancel_requests() > self._cancelling and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error
        if isinstance(error, (RedisError, OSError, TimeoutError, *_NONSENSE)):
            raise BusUnavailable(f"Redis did not answer: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return why there was no answer; nothing of what was sent, which may be a password."""
    for one in _with_causes(error):
        match one:
            case NotServed():
                return str(one)
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted: {one.verify_message}"
            case ssl.SSLError():
                return f"no TLS with it: {one.reason}"
            case AuthenticationError():
                return "it does not take this user with this password"
            case NoPermissionError():
                return "this user may not do this there"
            case ConnectionAbortedError() if one.strerror is None:
                # asyncio's, and the only one without a number.
                return "no TLS with it: nobody answered the handshake"
            case OSError() if one.strerror:
                return one.strerror
            case RedisConnectionError() if str(one) == _ENDED:
                return "it ended the connection"
            case _:
                pass
    return type(error).__name__


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
