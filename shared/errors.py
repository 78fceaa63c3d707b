"""What can go wrong at the border between the two processes.

FumaroleError
├── SettingsError       the environment does not configure this process
├── MalformedEvent      a message that is no ProxyEvent
├── UnreadableRoute     a route that must not be served
├── SnapshotRefused     a picture of the table that must not be applied
│   └── Unsigned        it is not what the controller has signed
├── TokenRefused        a token that proves nothing
├── BadKeySet           a JSON Web Key set that holds no usable key
├── SealRefused         sealed text that was not made for this route
└── BusError            Redis did not do what was asked
    ├── BusUnavailable  it could not be asked, or did not answer in time
    └── PublishRefused  it holds something else than this publisher believed
"""

from __future__ import annotations

from collections.abc import Sequence


class FumaroleError(Exception):
    """The root of everything that Fumarole raises on purpose."""


class SettingsError(FumaroleError):
    """The environment does not configure this process; holds every problem at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class MalformedEvent(FumaroleError):
    """A message without the fields that every version of a ProxyEvent has."""


class UnreadableRoute(FumaroleError):
    """A route that is not well-formed, is for something else, or is not signed as it must be."""


class SnapshotRefused(FumaroleError):
    """A picture of the table that is incomplete or older than the table in use."""


class Unsigned(SnapshotRefused):
    """A table, or its head, that is not what the controller has signed."""


class TokenRefused(FumaroleError):
    """A token that proves nothing.

    ``reason`` is one word for metrics and logs, from a closed set; the message is for people
    and holds nothing of the token but its structure.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadKeySet(FumaroleError):
    """A JSON Web Key set that is malformed or holds no key that can verify a token."""


class SealRefused(FumaroleError):
    """Sealed text that is damaged, or was made with another key or for another route."""


class BusError(FumaroleError):
    """Redis did not do what was asked of it."""


class BusUnavailable(BusError):
    """Redis could not be reached, or did not answer in time; what was asked may have happened."""


class PublishRefused(BusError):
    """Redis holds something else than this publisher believed, and nothing was written.

    ``reason`` is ``term`` (another publisher leads), ``epoch``, ``seq``, ``missing``, ``counts``,
    ``server`` (another process answers than the one on which the epoch began), ``log`` (it takes
    no such entry) or ``damaged``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"publish refused: {reason}")
        self.reason = reason
