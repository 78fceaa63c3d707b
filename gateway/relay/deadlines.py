"""What a browser's connection does when its time is up, state by state."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        case State.HEAD if front.partial:
            front.refuse("head_timeout", bare=True)
        case State.HEAD | State.LINGERING:
            _close(front, now)
        case State.RELAYING if exchange is not None and not exchange.request.done:
            _stalled_upload(front, exchange, now)
        case State.RELAYING if exchange is not None and not exchange.answered:
            front.path.meters.upstream_failures["app_timeout"] += 1
            front.refuse("app_timeout")
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
        front.transport.close()


def _stalled_upload(front: Front, exchange: Exchange, now: float) -> None:
    if exchange.upstream is None or not exchange.upstream.writable:
        # It is the app that does not read; the browser is not to blame.
        front.deadline = now + front.path.parts.limits.idle_seconds
    else:
        front.fail("head_timeout")
