"""Tests the hub as gateways see it: attaching, refusals, and the ends of a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from controller.hub.protocol import ENDED, REPLACED
from controller.hub.server import Address, dialled
from controller.kube.client import Kube
from controller.kube.exec import ExecFailed, PodExec
from controller.store.database import Store
from controller.store.instance import read_heartbeats
from controller.store.sessions.session_rows import end_session, namespaces_of_refused_shells
from shared.link import AttachTokens
from tests.clock import Clock
from tests.controller.hub.attaching import LINK_KEY, SID, Hub, assign, hub_serving
from tests.controller.hub.streams import FakeExecutor
from tests.controller.kube.api_server import write_kubeconfig
from tests.controller.kube.exec_server import serving
from tests.controller.running import eventually

# Ends


async def test_an_exit_is_reported_after_the_last_output(hub: Hub, executor: FakeExecutor) -> None:
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


async def test_a_terminal_moved_to_another_hub_is_no_longer_served(hub: Hub) -> None:
    await assign(hub, hub_id="another")
    assert (await hub.refused({"Authorization": f"Bearer {hub.token()}"})).status == 404


async def test_at_shutdown_clients_are_told_to_reconnect(
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
        assert await read_heartbeats(transaction) == []


async def test_a_forbidden_shell_is_recorded_for_the_leader(
    hub: Hub, executor: FakeExecutor
) -> None:
    executor.refuse = ExecFailed("pods/exec was refused with 403", status=403)
    await assign(hub, pod_uid="u2")
    assert (await hub.refused({"Authorization": f"Bearer {hub.token()}"})).status == 503

    async def is_recorded() -> bool:
        async with hub.store.read() as transaction:
            return await namespaces_of_refused_shells(transaction, after=0) == ["jobs"]

    await eventually(is_recorded, seconds=5)


# Refusals


@pytest.mark.parametrize(
    "header", ["", "Basic YWRhOng=", "Bearer", "Bearer x", "Bearer a.b.c", "Bearer é"]
)
async def test_an_attach_needs_a_valid_token(hub: Hub, executor: FakeExecutor, header: str) -> None:
    response = await hub.refused({"Authorization": header} if header else {})
    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert set(await response.json()) == {"code", "message"}


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
    response = await hub.refused({"Authorization": f"Bearer {token}"})
    assert response.status == 409


async def test_of_two_concurrent_attaches_with_one_token_one_succeeds(hub: Hub) -> None:
    token = hub.token()
    tries = await asyncio.gather(
        *(hub.attach(token=token) for _ in range(8)), return_exceptions=True
    )
    statuses = [t.status for t in tries if isinstance(t, aiohttp.WSServerHandshakeError)]
    assert statuses == [409] * 7


async def test_a_failed_exec_is_503_with_retry_after(
    store: Store, clock: Clock, executor: FakeExecutor, session: None
) -> None:
    executor.refuse = ExecFailed("pods/exec was refused with 500", status=500)
    async with hub_serving(store, clock, executor) as hub:
        await assign(hub)
        response = await hub.refused({"Authorization": f"Bearer {hub.token()}"})
        assert response.status == 503
        assert int(response.headers["Retry-After"]) >= 1
        assert "500" in (await response.json())["message"]


async def test_an_invalid_upgrade_is_400_and_spends_no_token(hub: Hub) -> None:
    headers = {"Authorization": f"Bearer {hub.token(jti='kept')}"}
    assert (await hub.http.get(hub.url(), headers=headers)).status == 400
    other = headers | {"Sec-WebSocket-Protocol": "binary"}
    assert (await hub.refused(other)).status == 400
    await hub.attach(token=hub.token(jti="kept"))


async def test_metrics_count_shells_clients_and_responses(hub: Hub) -> None:
    client = await hub.attach()
    await client.see(b"$ ")
    await hub.refused({})
    value = hub.registry.get_sample_value
    assert value("fumarole_hub_shells") == 1
    assert value("fumarole_hub_clients") == 1
    assert value("fumarole_hub_attaches_total", {"answer": "101"}) == 1
    assert value("fumarole_hub_attaches_total", {"answer": "401"}) == 1


# The address that gateways dial


@pytest.mark.parametrize(
    ("taken", "advertise", "dial"),
    [
        (("127.0.0.1", 5), None, ("127.0.0.1", 5)),
        (("0.0.0.0", 5), ("10.0.0.1", 0), ("10.0.0.1", 5)),
        (("0.0.0.0", 5), ("hub.example", 9), ("hub.example", 9)),
    ],
)
def test_the_advertised_address_is_dialable(
    taken: Address, advertise: Address | None, dial: Address
) -> None:
    assert dialled(taken, advertise) == dial


@pytest.mark.parametrize("taken", [("0.0.0.0", 5), ("::", 5), ("0:0::0", 5)])
def test_the_unspecified_address_is_not_advertised(taken: Address) -> None:
    with pytest.raises(ValueError, match="HUB_ADVERTISE"):
        dialled(taken, None)


# A real shell


async def test_a_real_shell_runs_over_pods_exec(
    store: Store, clock: Clock, session: None, tmp_path: Path
) -> None:
    async with serving() as server:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url, "good")
        async with (
            Kube.connect(kubeconfig) as kube,
            hub_serving(store, clock, PodExec(kube)) as hub,
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
