"""The limits of a connection in time and memory. Every limit has its unit and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar

T = TypeVar("T", int, float)

_LEAST: Final = "least"


def adjustable(default: T, *, least: float = 0.0) -> T:
    """Return the field of a limit that is a setting, of at least *least*."""
    return field(default=default, metadata={_LEAST: least})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the data path. Times and sizes apply to each connection, numbers to each worker.

    An adjustable one is a setting. docs/limits.md says what happens at each.
    """

    connections: int = adjustable(50_000)
    """Downstream connections in total: what a worker of 512 MiB can hold. Here and below 0 means
    unlimited."""

    session_connections: int = adjustable(10_000)
    """Of one session, so that it cannot use up a worker's connections."""

    user_connections: int = adjustable(10_000)
    """Of one user, over all sessions."""

    address_connections: int = adjustable(4096)
    """Unauthenticated connections from one address (IPv6: one /64), and as many more on public
    links. Whole campuses share one address."""

    address_opens_per_minute: int = adjustable(6000)
    """Attempts to open a session from one address: a whole campus may be behind it and start its
    day together. They take a tenth of a core."""

    user_opens_per_minute: int = adjustable(1200)
    """Sessions opened by one user: programs that start many jobs open each of them."""

    address_checks_per_second: int = adjustable(20)
    """Token signatures verified at once for one address; more wait in a queue."""

    checks_per_second: int = adjustable(500)
    """The same for all addresses: 5 % of a core. More wait in the queue."""

    checks_queued: int = 512
    """The length of that queue: a thread processes it in a tenth of a second. Beyond it: 429."""

    address_refusals_per_second: int = adjustable(200)
    """Responses 401, 403 and 404 to one address, with a burst of ten times that. Guessing names is
    hopeless anyway; this limits its cost."""

    worker_memory_bytes: int | None = None
    """The memory of a worker above which it sheds load. None for its share of the control group's
    limit; 0 never sheds load.
    """

    head_seconds: float = adjustable(10.0, least=0.1)
    """From the first byte of a request head to its last: a slower client is an attacker or gone."""

    idle_seconds: float = adjustable(75.0, least=0.1)
    """For a persistent connection without a request: longer than the limits of browsers and edge
    proxies."""

    dial_seconds: float = adjustable(5.0, least=0.1)
    """For resolving and connecting together: targets are in the same network."""

    slow_body_seconds: float = adjustable(60.0, least=1.0)
    """The interval between two checks of an upload's speed."""

    slow_body_bytes_per_second: int = adjustable(1024)
    """The minimum speed at which an upload must arrive and be read by the app. A modem is faster; a
    client that trickles is an attacker. Responses have no such limit: they may be event streams."""

    app_head_seconds: float = adjustable(300.0, least=1.0)
    """From the end of a request to the head of its response: some apps compute first. Also for the
    desktop's part of a handshake that the gateway leads."""

    write_stall_seconds: float = adjustable(60.0, least=1.0)
    """For how long a browser may acknowledge nothing. A shorter limit would end readers whose
    kernel reopens its window in large steps: 64 KB/s into a buffer of 20 MB shows every 20 s."""

    app_write_stall_seconds: float = adjustable(300.0, least=1.0)
    """For how long an app may acknowledge nothing: a notebook that computes does not read for
    minutes."""

    web_ping_seconds: float = adjustable(0.0)
    """The interval of pings to browsers in tunnels, sent between two frames; 0 for never. The
    frames belong to app and browser, and most apps send pings of their own."""

    linger_seconds: float = 2.0
    """How long input is read after a refusal, so that the client can read the refusal."""

    frame_seconds: float = 0.1
    """How long an app may take to complete the frame within which its tunnel is ended."""

    frame_bytes: int = 1 << 20
    """The maximum size of the rest of that frame."""

    end_seconds: float = 0.25
    """No byte is sent on an ended connection after this time, even if buffered."""

    app_abort_seconds: float = 0.25
    """From the Close of an ended WebSocket to the abort of its upstream connection. No byte passes
    meanwhile; the browsers of all connections that end together come first."""

    upstream_idle_seconds: float = 50.0
    """For an idle pooled connection: shorter than the keep-alive timeout of common app servers.
    (The one retry covers uvicorn's 5 s.)"""

    unsafe_idle_seconds: float = 2.0
    """A pooled connection that was idle for longer gets no request that cannot be sent twice, since
    the app may be closing it."""

    upstream_idle_per_user: int = 16
    """Idle connections kept for a session and user: browsers open six to a host."""

    upstream_spare_seconds: float = 1.0
    """For idle connections beyond that number, left by a program with many parallel requests."""

    write_high_bytes: int = 128 << 10
    """The high-water mark: above it the other side is not read. One more read (256 KiB) may be
    added, so a stalled reader costs at most 384 KiB."""

    splice_bytes: int = 1 << 20
    """From this size on the kernel moves the rest of a body. At half this size splicing costs a
    tenth more than reading."""

    pipe_bytes: int = 256 << 10
    """The capacity for one body while its reader stalls, in place of the write buffer. More than
    fits into a socket's buffer saves nothing."""

    pipes: int = 64
    """Open pipes: their contents are locked memory, of which a user has 64 MiB (pipe(7)). Further
    large bodies are relayed as any other."""

    early_bytes: int = 64 << 10
    """Pipelined requests buffered during a response."""

    interim_responses: int = 64
    """1xx responses before a final one: an app that sends more is broken."""

    last_words_bytes: int = 512 << 10
    """The maximum that is read of the early response of an app that reset the connection."""


ADJUSTABLE: Final[Mapping[str, float]] = {
    one.name: one.metadata[_LEAST] for one in fields(Limits) if _LEAST in one.metadata
}
"""The limits that are settings, each with its minimum: integers, or seconds."""
