"""What a connection may take, in time and memory. Every number has its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the data path; all hold per connection, in every worker alike."""

    head_seconds: float = 10.0
    """From a request's first byte to its head's last: slower ones are attacks, or gone."""

    idle_seconds: float = 75.0
    """A kept-alive connection without a request: longer than browsers' and edges' own limits."""

    dial_seconds: float = 5.0
    """Name look-up and connecting together: targets are in the same network."""

    app_head_seconds: float = 300.0
    """From the end of a request to the head of its answer: some apps compute first."""

    linger_seconds: float = 2.0
    """How long what a refused client still sends is read, so that it can read the refusal."""

    frame_seconds: float = 0.1
    """How long an app may take to finish the frame within which its tunnel is ended."""

    frame_bytes: int = 1 << 20
    """And how much of it."""

    end_seconds: float = 0.25
    """After this nothing passes any more on an ended connection, whatever is still buffered."""

    upstream_idle_seconds: float = 50.0
    """An unused pooled connection: shorter than the keep-alive of the servers behind which
    people put their apps (uvicorn's 5 s is covered by the one retry)."""

    unsafe_idle_seconds: float = 2.0
    """A pooled connection unused for longer is not given a request that could not be sent twice,
    since the app may be closing it at this moment."""

    upstream_idle_per_user: int = 16
    """Unused connections kept per session and user: browsers open six per host."""

    write_high_bytes: int = 128 << 10
    """Above this the other side is no longer read. One more read (256 KiB) may come on top, so a
    stalled reader costs at most 384 KiB."""

    early_bytes: int = 64 << 10
    """Pipelined requests kept while one is answered."""

    interim_answers: int = 64
    """1xx answers before a final one: an app that sends more is broken."""

    last_words_bytes: int = 512 << 10
    """What is read of the early answer of an app that reset the connection."""
