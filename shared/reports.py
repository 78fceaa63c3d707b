"""Reports of gateways about themselves and about sessions: for display, never for access. No I/O.

Each gateway process writes its own report and, for each session whose activity changed, its part of
the session's activity. The reader merges the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

REPORT_SECONDS: Final = 2.0
REPORT_KEPT_SECONDS: Final = 10
ACTIVITY_KEPT_SECONDS: Final = 3600
ROUND_SECONDS: Final = 10
MOST_FAILING: Final = 1000
"""Sessions in one report."""
MOST_SUBS: Final = 100
"""Users of one session in one activity."""
MOST_PART_BYTES: Final = 32768
"""The maximum length of one gateway's part of an activity; a gateway writes none that is longer."""
MOST_PARTS: Final = 64
"""The number of parts of one activity that are read."""

_Sub = Annotated[str, Meta(min_length=1, max_length=255)]
_Bytes = Annotated[int, Meta(ge=0, le=(1 << 62))]
_Time = Annotated[float, Meta(ge=0, lt=1e12)]


class Failure(msgspec.Struct, frozen=True):
    """The last failure of a session at a gateway; ``code`` is that of a refusal.

    ``reason`` says what is wrong with the response of an app (``app_bad_answer``).
    """

    code: str
    at: float
    reason: str = ""


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one gateway process."""

    at: float
    version: str
    epoch: str | None
    seq: int
    lag_seconds: float
    failing: Mapping[str, Failure] = {}


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The activity of a session at one gateway process, or at all of them.

    Times are unix seconds in steps of :data:`ROUND_SECONDS`. ``subs`` are the users who are
    connected now. ``bytes_in`` is towards the app. ``waiting_at`` is when a start page of the
    session was last open.
    """

    at: _Time
    last_input_at: _Time | None = None
    last_output_at: _Time | None = None
    bytes_in: _Bytes = 0
    bytes_out: _Bytes = 0
    subs: Annotated[tuple[_Sub, ...], Meta(max_length=MOST_SUBS)] = ()
    waiting_at: _Time | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Activity).decode


def rounded(seconds: float) -> float:
    """Return a time in coarse steps, so that reports do not show when keys were pressed."""
    return seconds // ROUND_SECONDS * ROUND_SECONDS


def encode_report(report: GatewayReport | Activity) -> bytes:
    """Return *report* as written to Redis."""
    return _encode(report)


def decode_activity(raw: bytes) -> Activity | None:
    """Return the activity in *raw*; None if it is malformed or too long."""
    if len(raw) > MOST_PART_BYTES:
        return None
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


def merge_activities(parts: Mapping[str, Activity], living: Iterable[str], now: float) -> Activity:
    """Return the activity in all *parts* (by gateway) together, at *now*.

    Users count as connected only by gateways in *living*, since a killed gateway cannot remove its
    part. Times in the future count as *now*.
    """
    alive = set(living)
    subs = {sub for name, part in parts.items() if name in alive for sub in part.subs}
    return Activity(
        at=_latest((part.at for part in parts.values()), now) or 0.0,
        last_input_at=_latest((part.last_input_at for part in parts.values()), now),
        last_output_at=_latest((part.last_output_at for part in parts.values()), now),
        bytes_in=sum(part.bytes_in for part in parts.values()),
        bytes_out=sum(part.bytes_out for part in parts.values()),
        subs=tuple(sorted(subs)[:MOST_SUBS]),
        waiting_at=_latest((part.waiting_at for part in parts.values()), now),
    )


def _latest(times: Iterable[float | None], now: float) -> float | None:
    return max((min(time, rounded(now)) for time in times if time is not None), default=None)
