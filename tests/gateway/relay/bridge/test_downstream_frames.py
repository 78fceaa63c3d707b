"""A browser's frames become messages, without a socket; the library's output is written."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from websockets.frames import Frame, Opcode

from gateway.core.fragments import FRAGMENT_BYTES
from gateway.relay.bridge.downstream_frames import DownstreamFrames, binary_header

HEAD = (
    b"GET /.fumarole/connect HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: binary\r\n\r\n"
)


class FakeTransport:
    """Keeps written bytes, as a transport would."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        """Keep *data*."""
        self.data += data


class Receiver:
    """Accepts messages until it has enough."""

    def __init__(self) -> None:
        self.written = FakeTransport()
        self.transport: asyncio.Transport | None = cast(Any, self.written)
        self.is_open = True
        self.messages: list[object] = []

    def received_text(self, frame: Frame) -> None:
        """Record a text, and accept no more."""
        self.messages.append(bytes(frame.data).decode())
        self.is_open = False

    def received_bytes(self, data: bytes) -> None:
        """Record bytes."""
        self.messages.append(data)


def on_open() -> tuple[DownstreamFrames, Receiver]:
    receiver = Receiver()
    frames = DownstreamFrames(receiver, subprotocol="binary")
    assert frames.accept(HEAD)
    assert receiver.written.data.startswith(b"HTTP/1.1 101 ")
    receiver.written.data = b""
    return frames, receiver


def sent(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def test_a_handshake_refused_by_the_websockets_library_is_not_accepted() -> None:
    receiver = Receiver()
    frames = DownstreamFrames(receiver, subprotocol="binary")
    assert not frames.accept(HEAD.replace(b"Host: a.example", b"Host"))
    assert receiver.written.data == b""


def test_consecutive_binary_frames_are_joined() -> None:
    frames, receiver = on_open()
    data = (
        sent(Opcode.BINARY, b"a", fin=False) + sent(Opcode.CONT, b"b") + sent(Opcode.BINARY, b"c")
    )
    assert frames.parse(data) == len(data)
    assert receiver.messages == [b"abc"]
    assert frames.between_messages


def test_a_position_within_a_message_or_frame_is_no_boundary() -> None:
    frames, _ = on_open()
    frames.parse(sent(Opcode.BINARY, b"a", fin=False))
    assert not frames.between_messages
    frames.parse(sent(Opcode.CONT, b"b")[:-1])
    assert not frames.between_messages


def test_a_large_message_is_delivered_as_it_arrives() -> None:
    frames, receiver = on_open()
    content = bytes(range(256)) * 1024
    data = sent(Opcode.BINARY, content) + sent(Opcode.BINARY, b"next")
    for at in range(0, 200_000, 10_000):
        frames.parse(data[at : at + 10_000])
    kept = 200_000 - sum(len(cast(bytes, message)) for message in receiver.messages)
    assert kept <= FRAGMENT_BYTES
    frames.parse(data[200_000:])
    assert b"".join(cast(list[bytes], receiver.messages)) == content + b"next"
    assert frames.between_messages


def test_a_close_is_found_after_the_rest_of_a_large_message() -> None:
    frames, _ = on_open()
    data = sent(Opcode.BINARY, bytes(200_000)) + sent(Opcode.CLOSE, b"\x03\xe8")
    frames.parse(data[:100_000])
    frames.send_close(4401, "ended")
    found = []
    for at in range(100_000, len(data), 30_000):
        frames.discard(data[at : at + 30_000])
        found.append(frames.close_has_come)
    assert found == [False, False, False, True]


def test_frames_after_a_text_that_ends_the_connection_are_not_delivered() -> None:
    frames, receiver = on_open()
    frames.parse(sent(Opcode.BINARY, b"a") + sent(Opcode.TEXT, b"no") + sent(Opcode.BINARY, b"b"))
    assert receiver.messages == [b"a", "no"]


def test_a_ping_gets_a_pong_and_a_close_gets_a_close() -> None:
    frames, receiver = on_open()
    frames.parse(sent(Opcode.PING, b"hi"))
    assert receiver.written.data == b"\x8a\x02hi"
    assert frames.is_open
    frames.parse(sent(Opcode.CLOSE, b"\x03\xe8"))
    assert receiver.written.data.endswith(b"\x88\x02\x03\xe8")
    assert (frames.is_open, frames.close_has_come) == (False, True)


def test_after_a_sent_close_only_the_browsers_close_is_read() -> None:
    frames, receiver = on_open()
    frames.send_close(4401, "ended")
    frames.send_close(1000, "again")
    assert receiver.written.data == b"\x88\x07" + (4401).to_bytes(2, "big") + b"ended"
    data = sent(Opcode.BINARY, b"late") + sent(Opcode.PING, b"")
    assert frames.discard(data) == len(data)
    assert (frames.close_has_come, receiver.messages) == (False, [])
    frames.discard(sent(Opcode.CLOSE, b"\x11\x31"))
    assert frames.close_has_come
    assert receiver.messages == []
    assert receiver.written.data.count(b"\x8a") == 0


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_a_binary_frame_header_equals_that_of_the_websockets_library(size: int) -> None:
    data = bytes(size)
    assert binary_header(size) + data == Frame(Opcode.BINARY, data).serialize(mask=False)
