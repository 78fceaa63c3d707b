"""TLS gets all records in order and a few in each turn, however they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.tls_records import READ_BYTES, RECORDS_AT_ONCE, RECORDS_UNREAD, TlsRecords

BUFFER_BYTES = 1 << 18
"""The buffer of a loop's TLS."""
RECORDS = st.lists(st.integers(0, 300) | st.integers(0, 16_384), min_size=1, max_size=400)


class Tls:
    """Accepts records, and records each piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def connection_made(self, transport: Any) -> None:
        """Use *transport*."""

    def get_buffer(self, size: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.pieces.append(bytes(self._buffer[:size]))

    def pause_writing(self) -> None:
        """Keep what is to be written."""

    resume_writing = pause_writing


class Socket(asyncio.Transport):
    """Delivers its bytes while it is read."""

    reading = True

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        raise AssertionError(data)

    def abort(self) -> None:
        raise AssertionError

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Side:
    """The callbacks of a loop, a socket and a TLS, with the records between them."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.tls, self.socket = Tls(), Socket()
        self.records = TlsRecords(self, self.tls)  # type: ignore[arg-type]  # a loop of one method
        self.records.connection_made(self.socket)

    def call_soon(self, call: Any) -> None:
        self.due.append(call)

    def turn(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()

    def read(self, data: bytes) -> None:
        self.records.get_buffer(-1)[: len(data)] = data
        self.records.buffer_updated(len(data))


def stream_of(sizes: Sequence[int]) -> bytes:
    return b"".join(b"\x17\x03\x03" + n.to_bytes(2) + bytes([n % 251]) * n for n in sizes)


def begun(stream: bytes, start: int, end: int) -> int:
    """Return how many records have the last byte of their header between *start* and *end*."""
    count = at = 0
    while at < len(stream):
        count += start < at + 5 <= end
        at += 5 + int.from_bytes(stream[at + 3 : at + 5])
    return count


@given(RECORDS, st.lists(st.integers(1, 70_000), min_size=1, max_size=20))
@settings(deadline=None, max_examples=200)
def test_tls_records_are_read_in_order_some_per_turn(sizes: list[int], cuts: list[int]) -> None:
    side, stream = Side(), stream_of(sizes)
    at = given_bytes = turns = 0
    while given_bytes < len(stream):
        if side.socket.reading and at < len(stream):
            step = min(cuts[turns % len(cuts)], READ_BYTES)
            side.read(stream[at : at + step])
            at += step
        side.turn()
        for piece in side.tls.pieces:
            assert begun(stream, given_bytes, given_bytes + len(piece)) <= RECORDS_AT_ONCE
            assert stream.startswith(piece, given_bytes)
            given_bytes += len(piece)
        # What was read in a turn, and what had waited for it.
        assert len(side.tls.pieces) <= 2
        side.tls.pieces.clear()
        turns += 1
    assert side.socket.reading
    assert not side.due


def test_reading_pauses_while_records_wait() -> None:
    side = Side()
    side.read(stream_of([3] * 2 * RECORDS_AT_ONCE))
    assert [len(piece) for piece in side.tls.pieces] == [8 * RECORDS_AT_ONCE]
    assert not side.socket.reading
    side.records.pause_reading()
    side.turn()
    assert len(side.tls.pieces) == 1
    side.records.resume_reading()
    side.records.resume_reading()
    assert not side.socket.reading
    side.turn()
    assert len(side.tls.pieces) == 2
    assert side.socket.reading


def test_a_read_that_fills_the_buffer_is_the_last_of_its_turn() -> None:
    """Otherwise a loop reads up to 32 times before other connections have a turn."""
    side = Side()
    assert len(side.records.get_buffer(1 << 18)) == READ_BYTES
    side.read(stream_of([16_379, 16_379]))
    assert [len(piece) for piece in side.tls.pieces] == [READ_BYTES]
    assert not side.socket.reading
    side.records.resume_reading()
    assert not side.socket.reading
    side.turn()
    assert side.socket.reading


def test_a_tls_protocol_paused_after_a_full_read_stays_paused() -> None:
    side = Side()
    side.read(stream_of([16_379, 16_379]))
    side.records.pause_reading()
    side.turn()
    assert not side.socket.reading
    side.records.resume_reading()
    assert side.socket.reading


def test_a_paused_tls_protocol_reads_no_more() -> None:
    side = Side()
    side.records.pause_reading()
    assert not side.socket.reading
    side.records.resume_reading()
    assert side.socket.reading


@pytest.mark.parametrize("at_once", [1, 40, 1000])
def test_reading_pauses_for_a_peer_that_does_not_read(at_once: int) -> None:
    """Each record may request one in return."""
    side, sent = Side(), 0
    side.read(stream_of([3] * 1000))
    while side.due:
        side.turn()
    side.tls.pieces.clear()
    side.records.pause_writing()
    while side.socket.reading:
        side.read(stream_of([3] * at_once))
        sent += at_once
        while side.due:
            side.turn()
    taken = sum(map(len, side.tls.pieces)) // 8
    assert RECORDS_UNREAD <= taken < RECORDS_UNREAD + RECORDS_AT_ONCE
    side.records.resume_writing()
    while side.due:
        side.turn()
    assert sum(map(len, side.tls.pieces)) == 8 * sent
    assert side.socket.reading


def test_waiting_records_are_dropped_with_their_connection() -> None:
    side = Side()
    side.tls.connection_lost = lambda exc: None  # type: ignore[attr-defined]
    side.read(stream_of([3] * 2 * RECORDS_AT_ONCE))
    side.records.connection_lost(None)
    side.turn()
    assert len(side.tls.pieces) == 1
