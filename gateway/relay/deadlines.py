"""What a browser's connection does when its time is up, state by state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.framing import LengthBody
from gateway.relay.states import State

if TYPE_CHECKING:
    from gateway.relay.exchange import Exchange
    from gateway.relay.front import Front


def act_on_deadline(front: Front, now: float) -> float:
    """Act if the deadline of *front* has passed; return when to look again, 0 for never."""
    if not front.deadline or now < front.deadline:
        return front.deadline
    front.deadline = 0.0
    exchange = front.exchange
    match front.state:
        case State.HEAD if front.reader.partial:
            front.refuse("head_timeout", bare=True)
        case State.HEAD | State.LINGERING:
            _close(front, now)
        case State.RELAYING if exchange is not None and not exchange.request.done:
            _judge_upload(front, exchange, now)
        case State.RELAYING if exchange is not None and not exchange.answered:
            _time_out(front)
        case _:
            pass
    return front.deadline


def _close(front: Front, now: float) -> None:
    if front.transport is None:
        return
    if front.state is State.LINGERING and front.transport.get_write_buffer_size():
        # A slow reader is still at our last answer.
        front.deadline = now + front.path.parts.limits.linger_seconds
    else:
        front.path.ends.close(front.transport)


def _judge_upload(front: Front, exchange: Exchange, now: float) -> None:
    """Let an upload go on that was not too slow since it was looked at last.

    Once its answer has begun, the app has what it wants of it, and both may take their time.
    """
    limits = front.path.parts.limits
    came, exchange.uploaded = exchange.uploaded, 0
    if exchange.answered or came >= limits.slow_body_bytes_per_second * limits.slow_body_seconds:
        front.deadline = now + limits.slow_body_seconds
    elif not exchange.is_app_reading():
        # It is the app that does not read; the browser is not to blame.
        _time_out(front)
    elif _waits_for_continue(exchange):
        # Not for good: it is asked to wait, and then looked at as any other.
        front.deadline = now + limits.app_head_seconds
        exchange.interims += 1
    else:
        front.fail("body_timeout")


def _waits_for_continue(exchange: Exchange) -> bool:
    """Say whether the browser sends nothing because the app has not asked it to."""
    body = exchange.request
    untouched = isinstance(body, LengthBody) and body.left == exchange.fields.length
    return (
        untouched
        and not exchange.interims
        and b"\r\nexpect: 100-continue\r\n" in b"\r\n%b" % exchange.fields.crossing.lower()
    )


def _time_out(front: Front) -> None:
    front.path.meters.upstream_failures["app_timeout"] += 1
    front.fail("app_timeout")
