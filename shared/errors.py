"""The exceptions of the contract between the two processes.

FumaroleError
├── SettingsError       the environment does not configure this process
├── MalformedEvent      a message is no ProxyEvent
├── UnreadableRoute     a route must not be served
├── SnapshotRefused     a snapshot of the table must not be used
│   └── Unsigned        it is not what the controller has signed
├── TokenRefused        a token does not verify
├── BadKeySet           a JSON Web Key Set holds no usable key
├── SealRefused         a sealed text was not made for this route
└── BusError            a Redis call failed
    ├── BusUnavailable  Redis could not be reached or did not respond in time
    └── PublishRefused  Redis does not hold what this publisher expects
"""

from __future__ import annotations

from collections.abc import Sequence


class FumaroleError(Exception):
    """The base class of all exceptions of Fumarole."""


class SettingsError(FumaroleError):
    """The environment does not configure this process; ``problems`` holds every problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class MalformedEvent(FumaroleError):
    """A message is no ProxyEvent: it lacks the common fields, or does not fit its type."""


class UnreadableRoute(FumaroleError):
    """A route is malformed, for another session or epoch, or not signed as required."""


class SnapshotRefused(FumaroleError):
    """A snapshot of the table is incomplete or older than the table in use."""


class Unsigned(SnapshotRefused):
    """A table or its head is not what the controller has signed."""


class TokenRefused(FumaroleError):
    """A token does not verify.

    ``reason`` is one word from a closed set, for metrics and logs. The message is for people and
    holds no content of the token.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadKeySet(FumaroleError):
    """A JSON Web Key Set is malformed or holds no key that can verify a token."""


class SealRefused(FumaroleError):
    """A sealed text is damaged, or was made with another key or for another route."""


class BusError(FumaroleError):
    """A Redis call failed."""


class BusUnavailable(BusError):
    """Redis could not be reached or did not respond in time; the call may have taken effect."""


class PublishRefused(BusError):
    """Redis does not hold what this publisher expects, and nothing was written.

    ``reason`` is ``term`` (another publisher leads), ``epoch``, ``seq``, ``missing``, ``counts``,
    ``server`` (the epoch began on another Redis process), ``log`` (the log refuses the entry) or
    ``damaged``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"publish refused: {reason}")
        self.reason = reason
