"""Tests that targets are dialled only within the allowed networks, by the dialled address."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.conftest import Serve
from tests.contract.rig import Rig, running_rig
from tests.corpora import read_corpus

# This network allows one address only; nothing here leaves this machine.
NARROW = "127.0.0.1/32"
TARGETS = [(host, said) for said, at, host in read_corpus("targets", 3) if at == NARROW]
# A name that does not resolve is no reachable target.
TARGETS += [("localhost.nonsense.invalid", "out")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def narrow_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    settings = {"UPSTREAM_NETWORKS": NARROW}
    async with running_rig(tmp_path_factory.mktemp("narrow"), settings) as rig:
        yield rig


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def far_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """Provide a gateway whose settings allow no loopback address."""
    settings = {"UPSTREAM_NETWORKS": "10.0.0.0/8,fd00::/8"}
    async with running_rig(tmp_path_factory.mktemp("far"), settings) as rig:
        yield rig


@pytest.mark.parametrize(("host", "expected"), TARGETS, ids=[case[0] for case in TARGETS])
async def test_only_allowed_targets_are_dialled(
    narrow_rig: Rig, serve: Serve, host: str, expected: str
) -> None:
    rig = narrow_rig
    app = await serve(None, "0.0.0.0")
    session, own = await rig.entered(app, target={"host": host})
    response = await rig.get(session, fields=own)
    if expected == "in":
        assert response.status == 200
        return
    assert response.status == 503 or (response.status == 502 and "invalid" in host)
    _, response = await rig.upgrade(session, "/", own)
    assert response.status in (502, 503)
    assert app.connections == []


async def test_an_ipv6_target_out_of_bounds_is_not_dialled(narrow_rig: Rig, serve: Serve) -> None:
    app = await serve(None, "::1")
    session, own = await narrow_rig.entered(app)
    response = await narrow_rig.get(session, fields=own)
    assert response.status == 503
    assert response.get("Retry-After") is not None
    assert app.connections == []


async def test_a_host_name_is_checked_by_its_resolved_addresses(
    narrow_rig: Rig, far_rig: Rig, serve: Serve
) -> None:
    app = await serve()
    session, own = await narrow_rig.entered(app, target={"host": "localhost"})
    assert (await narrow_rig.get(session, fields=own)).status == 200
    session, own = await far_rig.entered(app, target={"host": "localhost"})
    assert (await far_rig.get(session, fields=own)).status == 503
    assert len(app.connections) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "localhost"])
async def test_loopback_is_refused_unless_it_is_allowed(
    far_rig: Rig, serve: Serve, host: str
) -> None:
    app = await serve(None, "0.0.0.0")
    session, own = await far_rig.entered(app, target={"host": host})
    assert (await far_rig.get(session, fields=own)).status == 503
    assert app.connections == []


@pytest.mark.parametrize("kind", ["vnc", "terminal"])
async def test_vnc_and_terminal_targets_outside_the_allowed_networks_are_not_dialled(
    narrow_rig: Rig, serve: Serve, kind: str
) -> None:
    rig = narrow_rig
    app = await serve(None, "127.9.9.9")
    scheme = {"vnc": "tcp", "terminal": "ws"}[kind]
    protocol = {"vnc": "binary", "terminal": "fumarole.terminal.v1"}[kind]
    session, own = await rig.entered(app, kind=kind, target={"scheme": scheme})
    offer = ("Sec-WebSocket-Protocol", protocol)
    stream, _ = await rig.upgrade(session, "/.fumarole/connect", [*own, offer])
    await asyncio.sleep(0.2)
    assert app.connections == []
    stream.close()


async def test_a_closed_port_is_a_bad_gateway(rig: Rig) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        session = await rig.session(target={"port": port})
        own = rig.own(session, await rig.opened(session))
        assert (await rig.get(session, fields=own)).status == 502
        assert (await rig.upgrade(session, "/", own))[1].status == 502
        state = (await rig.debug(f"?host={session.host}"))["host"]
        assert (state["why"], state["failed"]["code"]) == ("failing", "app_unreachable")


async def test_a_target_that_does_not_respond_is_504(rig: Rig) -> None:
    """A listener with a full queue answers no SYN, so dialling it ends with the deadline."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        session = await rig.session(target={"port": listener.getsockname()[1]})
        own = rig.own(session, await rig.opened(session))
        start = time.monotonic()
        stream = await rig.connect()
        head = "".join(f"{name}: {value}\r\n" for name, value in own)
        stream.send(f"GET / HTTP/1.1\r\nHost: {session.host}\r\n{head}\r\n".encode())
        text = await stream.read_until(b"\r\n", 9.0)
        for filler in fillers:
            filler.close()
        assert text.startswith(b"HTTP/1.1 504 ")
        assert time.monotonic() - start < 7.0
