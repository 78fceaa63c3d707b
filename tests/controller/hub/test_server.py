"""The hub as gateways find it: real WebSockets, the real store, streams in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType
from kubernetes_asyncio.client import Configuration
from prometheus_client import CollectorRegistry

from controller.hub import attached, held
from controller.hub.protocol import ENDED, MAX_FRAME_BYTES, REPLACED, SUBPROTOCOL, TRY_LATER
from controller.hub.server import Address, HubRole, dialled, serving_hub
from controller.kube.exec import ExecFailed, Executor, PodExec
from controller.store.database import Store
from controller.store.hubs import alive_hubs
from controller.store.sessions import Session, assign_shell, end_session, insert_session
from shared.link import AttachTokens
from shared.tokens import Mode
from tests.controller.conftest import Clock
from tests.controller.hub.rows import insert_job
from tests.controller.hub.streams import FakeExecutor
from tests.controller.kube.exec_server import serving

LINK_KEY = bytes(range(32))
SID = "a" * 26


@dataclass
class Hub:
    """A hub that serves, and a gateway's hand."""

    role: HubRole
    store: Store
    clock: Clock
    http: aiohttp.ClientSession
    registry: CollectorRegistry
    exits: AsyncExitStack
    jtis: int = field(default=0)

    def token(self, *, sid: str = SID, mode: Mode = "control", jti: str = "") -> str:
        self.jtis += 1
        tokens = AttachTokens(LINK_KEY)
        jti = jti or str(self.jtis)
        return tokens.make(sid=sid, sub="ada", mode=mode, jti=jti, now=self.clock())

    def url(self, sid: str = SID) -> str:
        host, port = self.role.address
        return f"http://{host}:{port}/terminals/{sid}"

    async def attach(self, *, mode: Mode = "control", token: str = "") -> Client:
        """Attach as a gateway does."""
        headers = {"Authorization": f"Bearer {token or self.token(mode=mode)}"}
        socket = await self.http.ws_connect(self.url(), headers=headers, protocols=(SUBPROTOCOL,))
        self.exits.push_async_callback(socket.close)
        assert socket.protocol == SUBPROTOCOL
        return Client(socket)

    async def refused(self, headers: dict[str, str], sid: str = SID) -> aiohttp.ClientResponse:
        """Ask for the upgrade with *headers*, and return the answer that is none."""
        upgrade = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": SUBPROTOCOL,
        }  # fmt: skip
        answer = await self.http.get(self.url(sid), headers=upgrade | headers)
        assert answer.status != 101
        return answer


class Client:
    """An attached client; reads as a page does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self.socket = socket
        self.output = bytearray()
        self.texts: list[dict[str, Any]] = []
        self.code: int | None = None

    async def next(self) -> bool:
        """Take one message; False when the hub has closed."""
        async with asyncio.timeout(5):
            message = await self.socket.receive()
        if message.type is WSMsgType.TEXT:
            self.texts.append(json.loads(message.data))
        elif message.type is WSMsgType.BINARY:
            self.output += message.data
        else:
            self.code = self.socket.close_code
            return False
        return True

    async def see(self, wanted: bytes) -> None:
        searched = 0
        while self.output.find(wanted, searched) < 0:
            searched = max(0, len(self.output) - len(wanted))
            assert await self.next(), (self.output[-1000:], self.code)

    async def hear(self, kind: str) -> dict[str, Any]:
        while not self.said(kind):
            assert await self.next(), self.texts
        return self.said(kind)[-1]

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [text for text in self.texts if text["type"] == kind]

    async def until_closed(self) -> int | None:
        while await self.next():
            pass
        return self.code


@asynccontextmanager
async def hub_serving(store: Store, clock: Clock, executor: Executor) -> AsyncIterator[Hub]:
    registry = CollectorRegistry()
    async with (
        serving_hub(
            store=store, executor=executor, link_keys=[LINK_KEY], listen=("127.0.0.1", 0),
            advertise=None, registry=registry, clock=clock,
        ) as role,
        aiohttp.ClientSession() as http,
        AsyncExitStack() as exits,
    ):  # fmt: skip
        hub = Hub(role, store, clock, http, registry, exits)
        await registered(hub)
        yield hub


async def registered(hub: Hub) -> None:
    async with asyncio.timeout(5):
        while hub.role.problems():
            await asyncio.sleep(0.005)


async def assign(hub: Hub, *, pod_uid: str = "u1", hub_id: str | None = None) -> None:
    async with hub.store.write() as transaction:
        ids = list(await alive_hubs(transaction, now=hub.clock()))
        await assign_shell(
            transaction, SID, hub_id=hub_id or ids[0], pod="j-j1-job-0", pod_uid=pod_uid
        )


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LOOK_SECONDS", 0.05)


@pytest.fixture
async def session(store: Store, clock: Clock) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, now=clock())
        made = Session(
            sid=SID, job_id="j1", rank=0, kind="terminal", endpoint=None, port=None,
            base_path="/", created_at=clock(),
        )  # fmt: skip
        await insert_session(transaction, made)


@pytest.fixture
async def hub(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> AsyncIterator[Hub]:
    async with hub_serving(store, clock, executor) as hub:
        await assign(hub)
        yield hub


# Attached


async def test_a_client_sees_the_shell_and_types(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    attached_as = await client.hear("attached")
    assert attached_as == {
        "type": "attached", "mode": "control", "resumed": False, "cols": 80, "rows": 24
    }  # fmt: skip
    await client.see(b"$ ")
    stream = executor.streams[0]
    await client.socket.send_bytes(b"ls\n")
    stream.write(b"ls\r\n\x1b[1mfile\x1b[0m")
    await client.see(b"\x1b[1mfile\x1b[0m")
    assert bytes(stream.typed) == b"ls\n"


async def test_a_character_that_comes_in_two_pieces_stays_whole(
    hub: Hub, executor: FakeExecutor
) -> None:
    client = await hub.attach()
    await client.see(b"$ ")
    stream = executor.streams[0]
    for piece in ("\u20ac".encode()[:1], "\u20ac".encode()[1:], b"!"):
        stream.write(piece)
        await client.see(piece)
    assert bytes(client.output).decode().endswith("\u20ac!")
    typed = "\u20ac".encode()
    await client.socket.send_bytes(typed[:2])
    await client.socket.send_bytes(typed[2:])
    stream.write(b"end")
    await client.see(b"end")
    assert bytes(stream.typed) == typed
    # Also for who comes later.
    second = await hub.attach()
    await second.see("\u20ac!".encode())


async def test_the_second_client_finds_what_the_first_left(
    hub: Hub, executor: FakeExecutor
) -> None:
    first = await hub.attach()
    await first.see(b"$ ")
    executor.streams[0].write(b"left behind \x1b[6n")
    await first.see(b"\x1b[6n")
    await first.socket.close()
    second = await hub.attach()
    assert (await second.hear("attached"))["resumed"] is True
    await second.see(b"$ left behind ")
    executor.streams[0].write(b"!")
    await second.see(b"!")
    assert second.output == b"$ left behind !", "the query of the past is not asked again"
    assert len(executor.streams) == 1


async def test_several_see_the_same_and_control_decides_the_size(
    hub: Hub, executor: FakeExecutor
) -> None:
    control, view = await hub.attach(), await hub.attach(mode="view")
    assert (await view.hear("attached"))["mode"] == "view"
    await control.socket.send_str('{"type":"resize","cols":132,"rows":43}')
    assert await view.hear("resized") == {"type": "resized", "cols": 132, "rows": 43}
    executor.streams[0].write(b"both")
    await control.see(b"both")
    await view.see(b"both")
    assert executor.streams[0].sizes[-1] == (132, 43)


async def test_view_neither_types_nor_resizes(hub: Hub, executor: FakeExecutor) -> None:
    view, control = await hub.attach(mode="view"), await hub.attach()
    await view.socket.send_bytes(b"rm -rf /\n")
    await view.socket.send_str('{"type":"resize","cols":1,"rows":1}')
    await view.socket.ping()
    await control.socket.send_bytes(b"w\n")
    await asyncio.sleep(0.05)
    assert bytes(executor.streams[0].typed) == b"w\n"
    assert executor.streams[0].sizes == [(80, 24)]


async def test_texts_that_are_not_understood_end_nothing(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    for text in ("", "{", '{"type":"later"}', '{"type":"resize","cols":-1,"rows":1}', "[" * 4000):
        await client.socket.send_str(text)
    await client.socket.send_bytes(b"still here")
    executor.streams[0].write(b"answer")
    await client.see(b"answer")
    assert bytes(executor.streams[0].typed) == b"still here"


async def test_a_frame_of_more_than_a_mebibyte_is_refused(hub: Hub, executor: FakeExecutor) -> None:
    client, other = await hub.attach(), await hub.attach()
    await client.socket.send_bytes(b"x" * (MAX_FRAME_BYTES + 1))
    assert await client.until_closed() == 1009
    executor.streams[0].write(b"others go on")
    await other.see(b"others go on")
    assert not executor.streams[0].typed


async def test_a_client_that_reads_nothing_stalls_nobody(
    hub: Hub, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "STUCK_SECONDS", 0.3)
    stuck, reading = await hub.attach(), await hub.attach()
    await reading.hear("attached")
    executor.streams[0].write(*[b"x" * 32768] * 640, b"END")
    await reading.see(b"END")
    assert len(reading.output) == 2 + 640 * 32768 + 3, "whoever reads misses nothing"
    # What the kernel takes for it is not its own reading: more, until that is full too.
    async with asyncio.timeout(20):
        while hub.registry.get_sample_value("fumarole_hub_clients") == 2:
            executor.streams[0].write(b"x" * 32768)
            await reading.next()
    assert await stuck.until_closed() in (TRY_LATER, 1006)
    executor.streams[0].write(b"on and on")
    await reading.see(b"on and on")


async def test_a_client_that_was_behind_is_told_what_it_missed(
    hub: Hub, executor: FakeExecutor
) -> None:
    slow, fast = await hub.attach(), await hub.attach()
    executor.streams[0].write(*[b"y" * 32768] * 640, b"END")
    await fast.see(b"END")
    await slow.see(b"END")
    skipped = (await slow.hear("skipped"))["bytes"]
    # What it got, what it missed, and the reset after the gap are the whole.
    gaps = slow.output.count(b"\x18\x1b[m")
    missed = sum(text["bytes"] for text in slow.texts if text["type"] == "skipped")
    assert skipped > 0
    assert len(slow.output) - 4 * gaps + missed == 2 + 640 * 32768 + 3


# Ends


async def test_an_exit_is_told_after_the_last_words(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    await client.see(b"$ ")
    executor.streams[0].write(b"exit\r\n")
    executor.streams[0].exit(7, "command terminated with exit code 7")
    assert await client.until_closed() == ENDED
    assert client.output == b"$ exit\r\n"
    assert client.texts[-1] == {
        "type": "exit", "code": 7, "message": "command terminated with exit code 7"
    }  # fmt: skip
    again = await hub.attach()
    assert (await again.hear("attached"))["resumed"] is False
    await again.see(b"$ ")
    assert len(executor.streams) == 2


async def test_the_end_of_the_session_ends_the_shell(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    async with hub.store.write() as transaction:
        await end_session(transaction, SID, reason="stopped", now=hub.clock())
    assert await client.until_closed() == ENDED
    assert client.said("exit") == [], "its shell did not end by itself"
    assert (await hub.refused({"Authorization": f"Bearer {hub.token()}"})).status == 404


async def test_another_pod_replaces_the_shell(hub: Hub, executor: FakeExecutor) -> None:
    client = await hub.attach()
    await assign(hub, pod_uid="u2")
    assert await client.until_closed() == REPLACED
    assert client.said("exit") == [], "the client is to come back"
    again = await hub.attach()
    assert (await again.hear("attached"))["resumed"] is False


async def test_a_terminal_that_went_to_another_hub_is_served_no_more(hub: Hub) -> None:
    await assign(hub, hub_id="another")
    assert (await hub.refused({"Authorization": f"Bearer {hub.token()}"})).status == 404


async def test_a_hub_that_ends_tells_its_clients_to_come_back(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> None:
    async with aiohttp.ClientSession() as http, hub_serving(store, clock, executor) as hub:
        await assign(hub)
        hub.http, ours = http, hub.http
        client = await hub.attach()
        hub.http = ours
        hub.exits.pop_all()
        await client.see(b"$ ")
        waiting = asyncio.create_task(client.until_closed())
    assert await waiting == REPLACED
    async with store.read() as transaction:
        assert await alive_hubs(transaction, now=clock()) == {}


# Refused


@pytest.mark.parametrize(
    "header", ["", "Basic YWRhOng=", "Bearer", "Bearer x", "Bearer a.b.c", "Bearer é"]
)
async def test_without_a_good_token_nothing_is_attached(
    hub: Hub, executor: FakeExecutor, header: str
) -> None:
    answer = await hub.refused({"Authorization": header} if header else {})
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert set(await answer.json()) == {"code", "message"}


async def test_tokens_of_other_keys_times_and_terminals_are_refused(hub: Hub) -> None:
    other = AttachTokens(bytes(range(1, 33)))
    bad = [
        other.make(sid=SID, sub="ada", mode="view", jti="1", now=hub.clock()),
        AttachTokens(LINK_KEY).make(sid=SID, sub="ada", mode="view", jti="2", now=hub.clock() - 60),
        hub.token(sid="b" * 26),
    ]
    for token in bad:
        assert (await hub.refused({"Authorization": f"Bearer {token}"})).status == 401
    good = hub.token(sid="b" * 26)
    assert (await hub.refused({"Authorization": f"Bearer {good}"}, "b" * 26)).status == 404


async def test_a_token_attaches_once(hub: Hub) -> None:
    token = hub.token()
    await hub.attach(token=token)
    answer = await hub.refused({"Authorization": f"Bearer {token}"})
    assert answer.status == 409


async def test_two_with_one_token_at_once_are_one(hub: Hub) -> None:
    token = hub.token()
    tries = await asyncio.gather(
        *(hub.attach(token=token) for _ in range(8)), return_exceptions=True
    )
    statuses = [t.status for t in tries if isinstance(t, aiohttp.WSServerHandshakeError)]
    assert statuses == [409] * 7


async def test_an_exec_that_fails_is_503_and_says_when_to_come_back(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> None:
    executor.refuse = ExecFailed("pods/exec was refused with 500", status=500)
    async with hub_serving(store, clock, executor) as hub:
        await assign(hub)
        answer = await hub.refused({"Authorization": f"Bearer {hub.token()}"})
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert "500" in (await answer.json())["message"]


async def test_what_is_no_upgrade_of_ours_is_400_and_spends_no_token(hub: Hub) -> None:
    headers = {"Authorization": f"Bearer {hub.token(jti='kept')}"}
    assert (await hub.http.get(hub.url(), headers=headers)).status == 400
    other = headers | {"Sec-WebSocket-Protocol": "binary"}
    assert (await hub.refused(other)).status == 400
    await hub.attach(token=hub.token(jti="kept"))


async def test_metrics_count_shells_clients_and_answers(hub: Hub) -> None:
    client = await hub.attach()
    await client.see(b"$ ")
    await hub.refused({})
    value = hub.registry.get_sample_value
    assert value("fumarole_hub_shells") == 1
    assert value("fumarole_hub_clients") == 1
    assert value("fumarole_hub_attaches_total", {"answer": "101"}) == 1
    assert value("fumarole_hub_attaches_total", {"answer": "401"}) == 1


# What gateways dial


@pytest.mark.parametrize(
    ("taken", "advertise", "dial"),
    [
        (("127.0.0.1", 5), None, ("127.0.0.1", 5)),
        (("0.0.0.0", 5), ("10.0.0.1", 0), ("10.0.0.1", 5)),
        (("0.0.0.0", 5), ("hub.example", 9), ("hub.example", 9)),
    ],
)
def test_what_gateways_dial(taken: Address, advertise: Address | None, dial: Address) -> None:
    assert dialled(taken, advertise) == dial


@pytest.mark.parametrize("taken", [("0.0.0.0", 5), ("::", 5), ("0:0::0", 5)])
def test_all_addresses_are_none_that_can_be_dialled(taken: Address) -> None:
    with pytest.raises(ValueError, match="HUB_ADVERTISE"):
        dialled(taken, None)


# A real shell


async def test_a_real_shell_over_pods_exec(store: Store, clock: Clock, session: None) -> None:
    async def renew() -> None:
        raise AssertionError

    async with serving() as server:
        configuration = Configuration(host=server.url)
        configuration.api_key = {"BearerToken": "Bearer good"}
        async with (
            PodExec.connect(configuration, renew=renew) as executor,
            hub_serving(store, clock, executor) as hub,
        ):
            await assign(hub)
            client = await hub.attach()
            await client.socket.send_str('{"type":"resize","cols":100,"rows":30}')
            await client.socket.send_bytes(b"echo $((6*7))-$TERM; stty size\n")
            await client.see(b"42-xterm-256color")
            await client.see(b"30 100")
            await client.socket.send_bytes(b"exit 3\n")
            assert await client.until_closed() == ENDED
            assert client.texts[-1]["code"] == 3
