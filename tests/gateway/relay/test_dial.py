from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.relay.dial import DialFailed, Dialler, make_upstream_tls
from shared.routes.route import Target
from tests.gateway.relay.authorities import Authority, server_context
from tests.gateway.relay.harness import NETWORKS, App


def target(host: str, port: int = 1) -> Target:
    return Target(scheme="http", host=host, port=port, id="x")


async def dialled(host: str, port: int = 1, **changes: Any) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    fields: dict[str, Any] = {"networks": NETWORKS, "loop": loop, "trust": make_upstream_tls(None)}
    transport, _ = await Dialler(**(fields | changes)).dial(target(host, port), asyncio.Protocol)
    return transport


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
async def test_allowed_targets_are_dialled(host: str) -> None:
    async with App().running("0.0.0.0") as app:
        transport = await dialled(host, app.port)
        transport.close()


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fe80::1%lo"])
async def test_forbidden_addresses_are_not_dialled(host: str) -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled(host)
    assert failed.value.code in ("target_forbidden", "app_unreachable")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "localhost"])
async def test_loopback_is_not_allowed_by_a_wider_network(host: str) -> None:
    everywhere = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    async with App().running() as app:
        with pytest.raises(DialFailed) as failed:
            await dialled(host, app.port, networks=everywhere)
        assert failed.value.code == "target_forbidden"
        assert app.count == 0


async def test_the_api_server_is_dialled_only_if_explicitly_allowed() -> None:
    api = ip_network("127.0.0.7/32")
    async with App().running("0.0.0.0") as app:
        with pytest.raises(DialFailed) as failed:
            await dialled("127.0.0.7", app.port, refused=(api,))
        assert failed.value.code == "target_forbidden"
        (await dialled("127.0.0.8", app.port, refused=(api,))).close()
        (await dialled("127.0.0.7", app.port, refused=(api,), networks=(api,))).close()


class Named:
    """A loop in which every name has *addresses*."""

    def __init__(self, *addresses: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._addresses = addresses

    async def getaddrinfo(self, *_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (address, 0)) for address in self._addresses]

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


@contextmanager
def black_hole(address: str, port: int = 0) -> Iterator[int]:
    """Drop packets to a port at *address*, whose queue is full. Yields the port."""
    waiting: list[socket.socket] = []
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listening:
        listening.bind((address, port))
        listening.listen(0)
        try:
            for _ in range(4):
                sock = socket.socket(family)
                waiting.append(sock)
                sock.setblocking(False)
                with suppress(BlockingIOError):
                    sock.connect(listening.getsockname()[:2])
            yield listening.getsockname()[1]
        finally:
            for sock in waiting:
                sock.close()


async def test_a_host_with_one_dead_address_is_reached_at_the_other() -> None:
    async with App().running("127.0.0.2") as app:
        named = Named("10.9.9.9", "127.0.0.3", "127.0.0.2")
        transport = await dialled("both.example", app.port, loop=named)
        assert transport.get_extra_info("peername")[0] == "127.0.0.2"
        transport.close()


@pytest.mark.parametrize("holes", [("127.0.0.3",), ("::1", "127.0.0.3", "127.0.0.4")])
async def test_unresponsive_addresses_do_not_block_a_responsive_one(
    holes: tuple[str, ...],
) -> None:
    async with App().running("127.0.0.2") as app:
        with ExitStack() as stack:
            for hole in holes:
                stack.enter_context(black_hole(hole, app.port))
            named = Named(*holes, "127.0.0.2")
            transport = await dialled("both.example", app.port, loop=named, dial_seconds=30.0)
        assert transport.get_extra_info("peername")[0] == "127.0.0.2"
        transport.close()


async def test_an_unanswered_dial_ends_at_its_deadline_and_leaks_no_socket() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with black_hole("127.0.0.3") as port, black_hole("127.0.0.4", port):
        named = Named("127.0.0.3", "127.0.0.4")
        with pytest.raises(DialFailed) as failed:
            await dialled("both.example", port, loop=named, dial_seconds=0.6)
        assert failed.value.code == "app_timeout"
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_the_number_of_sockets_of_a_dial_is_bounded() -> None:
    async with App().running("127.0.0.2") as app:
        named = Named(*(f"127.0.1.{number}" for number in range(8)), "127.0.0.2")
        with pytest.raises(DialFailed) as failed:
            await dialled("many.example", app.port, loop=named)
        assert failed.value.code == "app_unreachable"


async def test_a_dial_race_without_descriptors_is_reported_as_gateway_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "none left")

    named = Named("127.0.0.3", "127.0.0.4")
    short = SimpleNamespace(**(vars(socket) | {"socket": none_left}))
    monkeypatch.setattr("gateway.relay.dial.socket", short)
    with pytest.raises(DialFailed) as failed:
        await dialled("both.example", loop=named)
    assert failed.value.code == "gateway_full"


async def test_a_dial_without_descriptors_is_reported_as_gateway_failure() -> None:
    class Short:
        async def create_connection(self, *_: object, **__: object) -> None:
            raise OSError(errno.EMFILE, "none left")

    with pytest.raises(DialFailed) as failed:
        await dialled("127.0.0.1", loop=Short())
    assert failed.value.code == "gateway_full"


# TLS


@asynccontextmanager
async def tls_app(certificate: Path) -> AsyncIterator[tuple[int, list[str | None]]]:
    """Run a server with *certificate*; yield its port, and the names that clients sent (SNI)."""
    asked: list[str | None] = []
    context = server_context(certificate)
    context.sni_callback = lambda _socket, name, _context: asked.append(name)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        await asyncio.sleep(0.05)


async def secured(host: str, port: int, trust: Path | None, scheme: str) -> str | None:
    """Connect; return the negotiated protocol."""
    dialler = Dialler(
        networks=NETWORKS, loop=asyncio.get_running_loop(), trust=make_upstream_tls(trust)
    )
    to = Target(scheme=scheme, host=host, port=port, id="x")  # type: ignore[arg-type]  # one of the schemes
    transport, _ = await dialler.dial(to, asyncio.Protocol)
    agreed: str | None = transport.get_extra_info("ssl_object").selected_alpn_protocol()
    transport.abort()
    await asyncio.sleep(0.02)
    return agreed


@pytest.mark.usefixtures("strict_by_default")
@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_a_target_with_a_trusted_certificate_is_reached(
    authority: Authority, scheme: str
) -> None:
    async with tls_app(authority.vouch("localhost")) as (port, asked):
        assert await secured("localhost", port, authority.path, scheme) == "http/1.1"
        assert asked == ["localhost"]


async def test_an_address_must_be_in_the_certificate_and_is_not_sent_as_sni(
    authority: Authority,
) -> None:
    async with tls_app(authority.vouch("127.0.0.1")) as (port, asked):
        assert await secured("127.0.0.1", port, authority.path, "https") == "http/1.1"
        assert asked == [None]


@pytest.mark.usefixtures("strict_by_default")
async def test_an_untrusted_certificate_fails_the_dial(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    for certificate, host, trust in (
        (authority.vouch("localhost"), "localhost", other.path),
        (authority.vouch("localhost"), "localhost", None),
        (authority.vouch("elsewhere.example"), "localhost", authority.path),
        (authority.vouch("localhost"), "127.0.0.1", authority.path),
        (authority.vouch("localhost", over=True), "localhost", authority.path),
    ):
        async with tls_app(certificate) as (port, _):
            with pytest.raises(DialFailed) as failed:
                await secured(host, port, trust, "https")
            assert failed.value.code == "app_unreachable"


async def test_a_plain_server_is_refused_as_tls_target(authority: Authority) -> None:
    async with App().running() as app:
        task = asyncio.create_task(secured("127.0.0.1", app.port, authority.path, "https"))
        (await app.connection()).send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(DialFailed) as failed:
            await task
        assert failed.value.code == "app_unreachable"


def test_a_file_without_certificate_is_refused_as_authority(tmp_path: Path) -> None:
    path = tmp_path / "empty.pem"
    path.write_text("nothing")
    with pytest.raises(OSError, match=r"NO_CERTIFICATE|no certificate|PEM"):
        make_upstream_tls(path)


async def test_a_host_name_is_checked_by_the_dialled_address() -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled("localhost", networks=(ip_network("10.0.0.0/8"),))
    assert failed.value.code == "target_forbidden"


async def test_a_refused_dial_is_reported() -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled("127.0.0.1", 1)
    assert failed.value.code == "app_unreachable"
    with pytest.raises(DialFailed) as failed:
        await dialled("no-such-name.invalid", 1)
    assert failed.value.code == "app_unreachable"


@pytest.mark.parametrize(
    "host", ["a..b", f"{'a' * 64}.example", ".example", "\u00fc" * 70, "a\0b", "\ud7ff"]
)
async def test_an_invalid_host_name_is_not_resolved(host: str) -> None:
    """Python raises a UnicodeError for some, before any name server is asked."""
    with pytest.raises(DialFailed) as failed:
        await dialled(host)
    assert failed.value.code == "app_unreachable"


class Resolver:
    """The running loop, with a resolver that answers once *answered* is set."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.answered = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def getaddrinfo(self, host: str, *_: object, **__: object) -> list[object]:
        self.asked.append(host)
        await self.answered.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answered")

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


async def test_dialling_has_a_deadline() -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled("slow.example", loop=Resolver(), dial_seconds=0.05)
    assert failed.value.code == "app_timeout"


async def test_dials_of_one_name_occupy_the_resolver_once() -> None:
    """Also after their deadline: the system's resolver tries on."""
    resolver = Resolver()
    dialler = Dialler(
        networks=NETWORKS,
        loop=cast(asyncio.AbstractEventLoop, resolver),
        dial_seconds=0.05,
        trust=make_upstream_tls(None),
    )

    async def outcome(host: str) -> str:
        with pytest.raises(DialFailed) as failed:
            await dialler.dial(target(host), asyncio.Protocol)
        return failed.value.code

    assert set(await asyncio.gather(*map(outcome, ["slow.example"] * 8))) == {"app_timeout"}
    assert await outcome("slow.example") == "app_timeout"
    assert await outcome("other.example") == "app_timeout"
    assert resolver.asked == ["slow.example", "other.example"]
    resolver.answered.set()
    assert await outcome("slow.example") == "app_unreachable"
    assert await outcome("slow.example") == "app_unreachable"
    assert resolver.asked.count("slow.example") >= 2
