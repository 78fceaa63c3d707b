"""Tests single delivery attempts to real receivers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from controller.webhooks import sender as module
from controller.webhooks.sender import (
    AddressInfo,
    Message,
    Result,
    opened_sender,
    sign,
)
from tests.controller.webhooks.receiving import (
    SECRET,
    Request,
    Server,
    accept,
    make_receiver,
    response,
)
from tests.gateway.relay.authorities import Authority, server_context

MESSAGE = Message("upd_1_x", b'{"id":1}')


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make deadlines long, because this machine may be slow; a test may shorten them."""
    for name in ("CONNECT_SECONDS", "ATTEMPT_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(module, name, 60.0)


async def attempt(url: str, *, look_up: Any = None, **fields: Any) -> Result:
    receiver = make_receiver(url, **fields)
    async with opened_sender(receiver, clock=time.time, look_up=look_up) as sender:
        return await sender.send(MESSAGE)


async def test_a_message_has_id_timestamp_and_a_signature_per_secret() -> None:
    other = b"another secret of thirty-two byte"
    server = Server()
    async with server.listening():
        result = await attempt(server.url, secrets=(SECRET, other))
    assert result == Result("accepted", 204)
    (request,) = server.requests
    assert request.line == "POST /hook HTTP/1.1"
    assert request.body == MESSAGE.body
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == MESSAGE.id
    stamp = int(request.headers["webhook-timestamp"])
    assert abs(stamp - time.time()) < 60
    expected = sign((SECRET, other), message_id=MESSAGE.id, timestamp=stamp, body=MESSAGE.body)
    assert request.headers["webhook-signature"] == expected
    assert len(expected.split()) == 2


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (response(200, body=b"ok"), Result("accepted", 200)),
        (response(500), Result("refused", 500)),
        (response(429, "Retry-After: 7"), Result("refused", 429, 7.0)),
        (response(410), Result("gone", 410)),
        (response(404), Result("refused", 404)),
        (b"not HTTP at all\r\n\r\n", Result("broken")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", Result("broken")),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", Result("broken")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n", Result("broken")),
        # The status decides; the rest of the response does not matter.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", Result("accepted", 200)),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz",
            Result("accepted", 200),
        ),
    ],
)  # fmt: skip
async def test_the_status_of_the_receiver_decides(
    given: bytes, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.2)

    async def answer(_request: Request, _writer: asyncio.StreamWriter) -> bytes:
        return given

    server = Server(answer)
    async with server.listening():
        assert await attempt(server.url) == result


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    elsewhere = Server()
    async with elsewhere.listening():

        async def answer(_request: Request, _writer: asyncio.StreamWriter) -> bytes:
            return response(status, f"Location: {elsewhere.url}", "Set-Cookie: a=b")

        server = Server(answer)
        async with server.listening():
            receiver = make_receiver(server.url)
            async with opened_sender(receiver, clock=time.time) as sender:
                for _ in range(2):
                    assert await sender.send(MESSAGE) == Result("redirected", status)
    assert elsewhere.connections == 0
    assert "cookie" not in server.requests[1].headers


async def test_a_closed_or_unanswered_request_is_a_failed_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def close(_request: Request, _writer: asyncio.StreamWriter) -> None:
        return None

    async def half(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
        await writer.drain()

    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def drip(_request: Request, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    for answer, result in (
        (close, "broken"),
        (half, "broken"),
        (hang, "timed_out"),
        (drip, "timed_out"),
    ):
        if result == "timed_out":
            monkeypatch.setattr(module, "ATTEMPT_SECONDS", 0.5)
        server = Server(answer)
        async with server.listening():
            found = await attempt(server.url)
            assert (found.outcome, found.reached) == (result, True)


async def test_an_endless_body_is_read_only_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.3)
    sent = 0

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    async def trickle(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    for behaviour in (answer, trickle):
        server = Server(behaviour)
        async with server.listening():
            assert await attempt(server.url) == Result("accepted", 200)
            receiver = make_receiver(server.url)
            async with opened_sender(receiver, clock=time.time) as sender:
                await sender.send(MESSAGE)
                await sender.send(MESSAGE)
            assert server.connections == 3  # a connection with an unread body is not reused
    assert sent < 100 << 20


async def test_a_connection_is_reused_after_its_response_was_read() -> None:
    server = Server(accept)
    async with server.listening():
        receiver = make_receiver(server.url)
        async with opened_sender(receiver, clock=time.time) as sender:
            for _ in range(3):
                assert (await sender.send(MESSAGE)).outcome == "accepted"
    assert server.connections == 1


# Permitted addresses


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "[::1]", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[fd12::1]", "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "168.63.129.16", "224.0.0.1",
        "localhost", "127.1", "2130706433",
    ],
)  # fmt: skip
async def test_special_and_private_addresses_are_dialled_only_if_listed(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object) -> None:
        raise AssertionError("it was dialled")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect, raising=False)
    found = await attempt(f"http://{host}:9/hook", networks=())
    # The HTTP client takes the last two for invalid names, though the C library parses them.
    assert found.outcome == ("broken" if host in ("127.1", "2130706433") else "forbidden")


async def test_a_wider_network_allows_neither_metadata_nor_loopback() -> None:
    wide = tuple(map(ip_network, ("0.0.0.0/0", "::/0", "10.0.0.0/8", "fc00::/7")))
    for host in ("127.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "192.168.1.1"):
        result = await attempt(f"http://{host}:9/", networks=wide)
        assert result.outcome == "forbidden"
        assert result.why == f"the address {host.strip('[]')} is not listed"


def info(address: str, port: int) -> AddressInfo:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))


async def test_a_host_name_is_checked_by_its_dialled_address_each_time() -> None:
    """A name server that changes its response each time does not bypass the check."""
    server = Server()
    async with server.listening():
        answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"]]

        def look_up(_host: str, port: int) -> Sequence[AddressInfo]:
            return [info(one, port) for one in answers.pop(0)]

        outcomes = [
            (
                await attempt(
                    f"http://hooks.example.com:{server.port}/",
                    look_up=look_up,
                    networks=(ip_network("127.0.0.1/32"),),
                )
            ).outcome
            for _ in range(3)
        ]
    assert outcomes == ["accepted", "forbidden", "accepted"]
    assert server.connections == 2


async def test_a_silent_name_server_blocks_one_thread_and_not_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    heard, asked = threading.Event(), 0

    def look_up(_host: str, _port: int) -> Sequence[AddressInfo]:
        nonlocal asked
        asked += 1
        heard.wait(60)
        return []

    receiver = make_receiver("http://hooks.example.com/")
    try:
        async with opened_sender(receiver, clock=time.time, look_up=look_up) as sender:
            for _ in range(2):
                results = await asyncio.gather(*(sender.send(MESSAGE) for _ in range(4)))
                assert {one.outcome for one in results} == {"unreachable"}
                assert not any(one.reached for one in results)
    finally:
        heard.set()
    assert asked == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = Server(), Server()
    async with proxy.listening(), server.listening():
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert (await attempt(server.url)).outcome == "accepted"
    assert proxy.connections == 0


@pytest.mark.usefixtures("strict_by_default")
async def test_an_untrusted_receiver_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    good = ours.vouch("127.0.0.1", "localhost")
    cases = [
        (good, ours.path, "accepted", None),
        (good, theirs.path, "unreachable", "unable to get local issuer certificate"),
        (good, None, "unreachable", "unable to get local issuer certificate"),
        (ours.vouch("elsewhere.example.com"), ours.path, "unreachable", "IP address mismatch"),
        (ours.vouch("127.0.0.1", over=True), ours.path, "unreachable", "has expired"),
    ]
    for certificate, authorities, outcome, why in cases:
        server = Server()
        async with server.listening(server_context(certificate)):
            url = server.url.replace("http:", "https:")
            result = await attempt(url, authorities=authorities)
        assert result.outcome == outcome
        if why is None:
            assert result.why is None
        else:
            assert result.why is not None
            assert result.why.startswith("its certificate is not trusted: ")
            assert why in result.why
        assert len(server.requests) == (outcome == "accepted")
    plain = Server()
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)
    async with plain.listening():
        assert (await attempt(plain.url.replace("http:", "https:"))).outcome == "unreachable"
    silent = Server()
    result = await attempt(silent.url)  # nothing listens
    assert (result.outcome, result.why) == ("unreachable", "Connection refused")
    silent.close()
