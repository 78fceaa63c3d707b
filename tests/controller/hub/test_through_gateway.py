"""Tests a browser's terminal with a real gateway, a real hub, and bash."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from controller.hub.protocol import SUBPROTOCOL
from controller.hub.scrollback import Scrollbacks
from controller.hub.server import serving_hub
from controller.kube.client import Kube
from controller.kube.exec import PodExec
from controller.sessions.terminals import target_id, target_path
from controller.store.database import Store
from controller.store.instance import read_heartbeats
from controller.store.sessions.revocations import StoredRevocation, add_revocation
from controller.store.sessions.session_rows import Session as Row
from controller.store.sessions.session_rows import assign_shell, end_session, insert_session
from shared.settings import key_file
from tests.contract.rig import Rig, Session, running_rig
from tests.controller.hub.attaching import Client
from tests.controller.hub.rows import insert_job
from tests.controller.kube.api_server import write_kubeconfig
from tests.controller.kube.exec_server import ExecServer, serving


class Terminal:
    """A terminal session known to gateway and hub, and the browsers attached to it."""

    def __init__(self, rig: Rig, store: Store, http: aiohttp.ClientSession) -> None:
        self.rig = rig
        self.store = store
        self.http = http
        self.exits = AsyncExitStack()
        self.session: Session

    async def publish(self) -> None:
        """Assign the session to the hub and publish its route, as the controller does."""
        async with self.store.read() as transaction:
            hub = (await read_heartbeats(transaction))[0].hub
        session = self.rig.make_session(kind="terminal", job="j1")
        async with self.store.write() as transaction:
            await insert_job(transaction, now=time.time())
            row = Row(
                sid=session.sid, job_id="j1", rank=0, kind="terminal", endpoint=None, port=None,
                base_path="/", created_at=time.time(),
            )  # fmt: skip
            await insert_session(transaction, row)
            await assign_shell(transaction, row.sid, hub_id=hub.id, pod="p", pod_uid="u1")
        self.session = await self.rig.session(
            kind="terminal", job="j1", sid=session.sid,
            target={
                "scheme": "ws", "host": hub.host, "port": hub.port,
                "base_path": target_path(session.sid), "id": target_id(hub.id, "u1"),
            },
        )  # fmt: skip

    async def browse(self, *, query: str = "", **claims: Any) -> Client:
        """Open the session and connect, as its page does."""
        return await self.connect(await self.rig.opened(self.session, **claims), query)

    async def connect(self, cookie: str, query: str = "") -> Client:
        host, port = self.rig.process.public
        socket = await self.http.ws_connect(
            f"http://{host}:{port}/.fumarole/connect{query}",
            protocols=(SUBPROTOCOL,),
            headers={"Host": self.session.host, "Origin": self.session.origin, "Cookie": cookie},
        )
        self.exits.push_async_callback(socket.close)
        assert socket.protocol == SUBPROTOCOL
        return Client(socket)


@pytest.fixture
async def commands() -> AsyncIterator[ExecServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def terminal(tmp_path: Path, store: Store, commands: ExecServer) -> AsyncIterator[Terminal]:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", commands.url, "good")
    async with (
        running_rig(tmp_path) as rig,
        Kube.connect(kubeconfig) as kube,
        serving_hub(
            store=store, executor=PodExec(kube), link_keys=key_file(str(tmp_path / "link.key")),
            listen=("127.0.0.1", 0), advertise=None, registry=CollectorRegistry(),
            scrollbacks=Scrollbacks(),
        ) as hub,
        aiohttp.ClientSession() as http,
    ):  # fmt: skip
        async with asyncio.timeout(10):
            while hub.problems():
                await asyncio.sleep(0.01)
        terminal = Terminal(rig, store, http)
        await terminal.publish()
        async with terminal.exits:
            yield terminal


async def test_users_share_a_shell_and_a_restarted_gateway_reattaches(terminal: Terminal) -> None:
    ada = await terminal.browse()
    assert (await ada.hear("attached"))["mode"] == "control"
    await ada.socket.send_str('{"type":"resize","cols":100,"rows":30}')
    await ada.socket.send_bytes(b"secret=42; echo $((6*7))-$TERM; stty size\n")
    await ada.see(b"42-xterm-256color")
    await ada.see(b"30 100")

    # A viewer sees all output, but cannot type or resize.
    bob = await terminal.browse(sub="bob", mode="view")
    assert (await bob.hear("attached"))["mode"] == "view"
    await bob.see(b"42-xterm-256color")
    await bob.socket.send_bytes(b"echo bob-$((1+1))\n")
    await bob.socket.send_str('{"type":"resize","cols":1,"rows":1}')
    dice = random.Random(18)
    for _ in range(200):
        await bob.socket.send_bytes(dice.randbytes(dice.randrange(300)))
        await bob.socket.send_json({"type": dice.choice(["resize", "renew", "seen"]), "cols": 1})
    await ada.socket.send_bytes(b"stty size; echo ada-$((1+1))\n")
    await bob.see(b"ada-2")
    assert b"bob-2" not in bob.output
    assert bytes(bob.output).count(b"30 100") == 2

    # A client that names an offset gets every byte: ada's output, and none of bob's input.
    await ada.see(b"ada-2")
    transcript = await terminal.browse(query="?after=0&shell=")
    attached = await transcript.hear("attached")
    await transcript.see(b"ada-2")
    assert (attached["offset"], bytes(transcript.output[: len(ada.output)])) == (
        0,
        bytes(ada.output),
    )

    # Kill the gateway: the shell does not run in it.
    cookie = await terminal.rig.opened(terminal.session)
    await terminal.rig.process.kill()
    assert await ada.until_closed() in (1006, 1001)
    await terminal.rig.process.start()
    again = await terminal.connect(cookie)
    assert (await again.hear("attached"))["resumed"] is True
    await again.see(b"42-xterm-256color")
    await again.socket.send_bytes(b"echo still-$secret\n")
    await again.see(b"still-42")


async def test_a_revoked_user_is_disconnected_and_the_shell_stays(terminal: Terminal) -> None:
    ada = await terminal.browse()
    bob = await terminal.browse(sub="bob")
    await ada.hear("attached")
    await bob.hear("attached")
    await terminal.rig.bus.revoke(sid=terminal.session.sid, sub="bob")
    assert await bob.until_closed() == 4401
    await ada.socket.send_bytes(b"echo here-$((1+1))\n")
    await ada.see(b"here-2")


async def test_a_shell_with_input_of_a_revoked_user_is_reported_and_replaceable(
    terminal: Terminal,
) -> None:
    ada, bob = await terminal.browse(), await terminal.browse(sub="bob")
    await ada.hear("attached")
    await bob.hear("attached")
    await bob.socket.send_bytes(b"id() { echo trap-$((6*7)); }; id\n")
    await ada.see(b"trap-42")
    sid = terminal.session.sid
    revocation = StoredRevocation(member=f"sub:{sid}:bob", at=time.time(), sid=sid, sub="bob")
    async with terminal.store.write() as transaction:
        await add_revocation(transaction, revocation)
    await terminal.rig.bus.revoke(sid=sid, sub="bob")
    assert await bob.until_closed() == 4401
    await ada.hear("revoked_input")
    await ada.socket.send_str('{"type":"renew"}')
    assert await ada.until_closed() == 1012
    again = await terminal.browse()
    assert (await again.hear("attached"))["resumed"] is False
    await again.socket.send_bytes(b"id; echo done-$((1+1))\n")
    await again.see(b"done-2")
    assert b"trap-42" not in again.output
    assert again.said("revoked_input") == []


async def test_exit_and_session_end_close_with_4410(terminal: Terminal) -> None:
    ada = await terminal.browse()
    await ada.hear("attached")
    await ada.socket.send_bytes(b"exit 3\n")
    assert await ada.until_closed() == 4410
    assert ada.said("exit")[0]["code"] == 3
    again = await terminal.browse()
    assert (await again.hear("attached"))["resumed"] is False
    async with terminal.store.write() as transaction:
        await end_session(transaction, terminal.session.sid, reason="stopped", now=time.time())
    assert await again.until_closed() == 4410
    assert again.said("exit") == []


async def test_a_replaced_pod_closes_with_1012(terminal: Terminal) -> None:
    ada = await terminal.browse()
    await ada.hear("attached")
    async with terminal.store.write() as transaction:
        hub_id = terminal.session.route["target"]["id"].partition("/")[0]
        sid = terminal.session.sid
        await assign_shell(transaction, sid, hub_id=hub_id, pod="p", pod_uid="u2")
    assert await ada.until_closed() == 1012


async def test_a_refused_exec_gets_no_101(terminal: Terminal, commands: ExecServer) -> None:
    ada = await terminal.browse()
    await ada.hear("attached")
    await ada.socket.send_bytes(b"exit\n")
    assert await ada.until_closed() == 4410
    commands.refuse = [500] * 10
    with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
        await terminal.browse()
    assert raised.value.status in (502, 503)
