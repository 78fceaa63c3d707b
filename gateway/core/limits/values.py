"""What a connection may take, in time and memory. Every number has its unit and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the data path. Times and sizes hold for each connection, numbers in each worker.

    docs/limits.md says which of them are settings, and what happens at each.
    """

    connections: int = 50_000
    """From browsers, in all: what a worker of 512 MiB can hold. 0 here and below: without limit."""

    session_connections: int = 10_000
    """Of one session: so that no one session can take all places of a worker."""

    user_connections: int = 10_000
    """Of one user, over all sessions."""

    address_connections: int = 4096
    """Without a good credential from one address (IPv6: one /64), and as many more by public links.
    Whole campuses share one."""

    address_opens_per_minute: int = 6000
    """Tries to open a session from one address: all of a campus may be behind it, and start its
    day at once. A tenth of a core."""

    user_opens_per_minute: int = 1200
    """Sessions opened by one user: programs that start many jobs open each of them."""

    address_checks_per_second: int = 20
    """Signatures of tokens checked at once for one address; more of them wait in a queue."""

    checks_per_second: int = 500
    """And for all: 5 % of a core. More of them wait in the queue."""

    checks_queued: int = 512
    """What may wait in it: a thread works it off in a tenth of a second. Beyond that: 429."""

    address_refusals_per_second: int = 200
    """Responses 401, 403 and 404 to one address, ten times that at once: a search through names is
    hopeless anyway, this is about what it costs."""

    worker_memory_bytes: int | None = None
    """What a worker may use before it sheds load; None for its share of the control group's limit.
    0: it never does."""

    head_seconds: float = 10.0
    """From a request's first byte to its head's last: slower ones are attacks, or gone."""

    idle_seconds: float = 75.0
    """A kept-alive connection without a request: longer than browsers' and edges' own limits."""

    dial_seconds: float = 5.0
    """Name look-up and connecting together: targets are in the same network."""

    slow_body_seconds: float = 60.0
    """How often an upload is looked at."""

    slow_body_bytes_per_second: int = 1024
    """What has to come, and to be taken by the app, at least between two looks. A modem is
    faster; who sends by drops means harm. Answers have no such limit: they may be events."""

    app_head_seconds: float = 300.0
    """From the end of a request to the head of its answer: some apps compute first."""

    write_stall_seconds: float = 60.0
    """For how long a browser may take nothing of what waits for it. Shorter ones would end readers
    whose kernel reopens its window in lumps: 64 KB/s into a buffer of 20 MB shows every 20 s."""

    app_write_stall_seconds: float = 300.0
    """And an app: a notebook that computes reads nothing for minutes."""

    web_ping_seconds: float = 0.0
    """How often browsers of WebSockets to apps are pinged, between two frames; 0 for never. Their
    frames are the app's and the browser's own, and most apps ping by themselves."""

    linger_seconds: float = 2.0
    """How long what a refused client still sends is read, so that it can read the refusal."""

    frame_seconds: float = 0.1
    """How long an app may take to finish the frame within which its tunnel is ended."""

    frame_bytes: int = 1 << 20
    """And how much of it."""

    end_seconds: float = 0.25
    """After this nothing passes any more on an ended connection, whatever is still buffered."""

    app_abort_seconds: float = 0.25
    """From the Close of a WebSocket that is ended to the end of its connection to the app. Nothing
    passes there meanwhile; the browsers of all that end together come first."""

    upstream_idle_seconds: float = 50.0
    """An unused pooled connection: shorter than the keep-alive of the servers behind which
    people put their apps (uvicorn's 5 s is covered by the one retry)."""

    unsafe_idle_seconds: float = 2.0
    """A pooled connection unused for longer is not given a request that could not be sent twice,
    since the app may be closing it at this moment."""

    upstream_idle_per_user: int = 16
    """Unused connections kept per session and user: browsers open six per host."""

    upstream_spare_seconds: float = 1.0
    """Those beyond them: as many as were in use at once, by a program that asks with many."""

    write_high_bytes: int = 128 << 10
    """Above this the other side is no longer read. One more read (256 KiB) may come on top, so a
    stalled reader costs at most 384 KiB."""

    splice_bytes: int = 1 << 20
    """From here on the rest of a body is moved by the kernel. Half of it costs a tenth more so."""

    pipe_bytes: int = 256 << 10
    """Of one body, while its reader stalls: instead of, not beside, what is written by us. More
    than fits into a socket's buffer saves nothing."""

    pipes: int = 64
    """Open at once: what they hold is locked memory, of which a user has 64 MiB (pipe(7)). Further
    large bodies are passed on as any other."""

    early_bytes: int = 64 << 10
    """Pipelined requests kept while one is answered."""

    interim_responses: int = 64
    """1xx answers before a final one: an app that sends more is broken."""

    last_words_bytes: int = 512 << 10
    """What is read of the early answer of an app that reset the connection."""


NUMBERS: Final = frozenset(
    {
        "connections",
        "session_connections",
        "user_connections",
        "address_connections",
        "address_opens_per_minute",
        "user_opens_per_minute",
        "address_checks_per_second",
        "checks_per_second",
        "address_refusals_per_second",
        "slow_body_bytes_per_second",
    }
)
"""Limits that are settings: whole numbers, 0 for without limit."""
SECONDS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "head_seconds": 0.1,
        "idle_seconds": 0.1,
        "dial_seconds": 0.1,
        "app_head_seconds": 1.0,
        "slow_body_seconds": 1.0,
        "write_stall_seconds": 1.0,
        "app_write_stall_seconds": 1.0,
        "web_ping_seconds": 0.0,
    }
)
"""Limits that are settings, in seconds, each with the least that makes sense."""
