"""Tests a gateway of two workers: it behaves as one, and survives the loss of its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.core.bus_state import SUSPENDED_SECONDS
from tests.contract.conftest import Serve
from tests.contract.frames import alive, last_frame
from tests.contract.messages import request
from tests.contract.rig import Rig, Session, running_rig
from tests.contract.streams import Stream
from tests.contract.test_connection_close import *  # noqa: F403  # the same must hold with two workers
from tests.contract.test_connection_lifetime import *  # noqa: F403
from tests.contract.test_token_reuse import *  # noqa: F403
from tests.contract.upstream import App, websocket
from tests.timing import timed

REVOKED_SECONDS = 0.25
RESTART_SECONDS = 10.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with running_rig(tmp_path_factory.mktemp("pair"), {"WORKERS": "2"}) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="session")
async def rig(pair_rig: Rig) -> AsyncIterator[Rig]:
    """Provide a gateway of two workers instead of the usual one."""
    yield pair_rig
    pair_rig.close_streams()


def family_of(rig: Rig) -> set[int]:
    """Return the process ids of all processes of the gateway."""
    found, wanted = {rig.process.pid}, [rig.process.pid]
    while wanted:
        pid = wanted.pop()
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            wanted += [int(child) for child in children]
            found |= {int(child) for child in children}
    return found


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until_gone(pids: set[int], seconds: float) -> float:
    """Return the seconds until none of *pids* runs."""
    start = time.monotonic()
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() - start < seconds, left
        await asyncio.sleep(0.01)
    return time.monotonic() - start


async def workers_of(rig: Rig) -> list[dict[str, Any]]:
    """Return the supervisor's data about its workers."""
    state = await rig.debug()
    return list(state["workers"])


async def until_workers(rig: Rig, **wanted: Any) -> list[dict[str, Any]]:
    """Return the workers once all of them have *wanted*."""
    deadline = time.monotonic() + RESTART_SECONDS + 15.0
    while True:
        found = await workers_of(rig)
        if all(one.get(name) == value for one in found for name, value in wanted.items()):
            return found
        assert time.monotonic() < deadline, (found, rig.process.tail())
        await asyncio.sleep(0.05)


async def tunnels_on_each(rig: Rig, session: Session, cookie: str) -> list[Stream]:
    """Return tunnels that are spread over all workers."""
    tunnels: list[Stream] = []
    deadline = time.monotonic() + 10.0
    while True:
        tunnels += [await rig.tunnel(session, cookie) for _ in range(4)]
        if all(one["open"] >= 2 for one in await workers_of(rig)):
            return tunnels
        assert time.monotonic() < deadline, await workers_of(rig)


async def metric(rig: Rig, name: str) -> float:
    """Return the value of the metric *name*, which includes its labels."""
    text = (await rig.process.ops_response("/metrics")).body.decode()
    found = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    assert len(found) == 1, (name, text)
    return float(found[0].split()[1])


# The workers as one gateway


async def test_connections_are_spread_and_a_revocation_ends_them_on_every_worker(
    rig: Rig, serve: Serve
) -> None:
    session, other = await rig.session(await serve(websocket())), None
    cookie = await rig.opened(session, iat=int(time.time()) - 2)
    tunnels = await tunnels_on_each(rig, session, cookie)
    other, _, unconcerned = await rig.opened_with_tunnel(await serve(websocket()))
    with timed(*family_of(rig)) as took:
        await rig.bus.revoke(sid=session.sid)
        closes = await asyncio.gather(*(last_frame(tunnel, 20.0) for tunnel in tunnels))
    assert took.seconds < REVOKED_SECONDS + 0.5
    assert {frame.code for frame in closes} == {4401}
    await alive(unconcerned)
    assert await rig.status(session, cookie) == 401
    assert other.sid != session.sid


async def test_many_connections_are_balanced_over_workers(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    cookie = await rig.opened(session)
    for _ in range(60):
        await rig.tunnel(session, cookie)
    found = sorted(one["open"] for one in await workers_of(rig))
    assert found[0] >= 18, found


async def test_metrics_are_summed_over_workers(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    before = await metric(rig, 'fumarole_gateway_requests_total{class="2xx",from="app"}')
    for _ in range(20):
        assert await rig.status(session, cookie) == 200
    assert (
        await metric(rig, 'fumarole_gateway_requests_total{class="2xx",from="app"}') == before + 20
    )
    assert await metric(rig, 'fumarole_gateway_workers{state="accepting"}') == 2
    resident = await metric(rig, "process_resident_memory_bytes")
    own = int(Path(f"/proc/{rig.process.pid}/statm").read_text().split()[1]) * 4096
    assert resident > own * 2


async def test_all_workers_hold_the_same_table(rig: Rig) -> None:
    await rig.session()
    state = await rig.debug()
    assert {one["hash"] for one in state["workers"]} == {state["hash"]}
    assert {one["seq"] for one in state["workers"]} == {state["seq"]}


async def test_a_new_epoch_reaches_every_worker_without_refused_requests(
    rig: Rig, serve: Serve
) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    ending = await rig.session()
    rig.bus.routes.pop(ending.sid)
    rebuilt = asyncio.create_task(rig.bus.rebuild())
    for _ in range(20):
        assert await rig.status(session, cookie) == 200
    await rebuilt
    await rig.settled()
    assert (await rig.get(ending)).status == 404
    state = await rig.debug()
    assert {one["hash"] for one in state["workers"]} == {state["hash"]}


async def test_debug_routes_states_why_a_host_is_not_served(rig: Rig, serve: Serve) -> None:
    app = await serve()
    shared = f"link.{rig.url.hostname}"
    hosts = {
        "served": (await rig.session(app)).host,
        "starting": (await rig.session(app, state="starting")).host,
        "closing": (await rig.session(app, state="closing")).host,
        "expired": (await rig.session(app, expires_at=1)).host,
        "forbidden_target": (await rig.session(app, target={"host": "192.0.2.1"})).host,
        "unknown": rig.make_session().host,
    }
    for _ in range(2):
        await rig.session(app, links=(shared,), public=True)
    hosts["ambiguous"] = shared
    unreadable = rig.make_session()
    await rig.publish_text(unreadable, '{"sid": 1}')
    hosts["unreadable"] = unreadable.host
    for why, host in hosts.items():
        state = (await rig.debug(f"?host={host}"))["host"]
        assert state["why"] == why, state
        assert "192.0.2.1" not in str(state)


# Process failures. Each test has a gateway of its own.


async def with_tunnels(rig: Rig, app: App) -> tuple[Session, str, list[Stream]]:
    """Return a session, its cookie, and tunnels on every worker."""
    session = await rig.session(app)
    cookie = await rig.opened(session, iat=int(time.time()) - 2)
    return session, cookie, await tunnels_on_each(rig, session, cookie)


async def test_a_dead_worker_is_restarted_with_the_whole_table(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        session, cookie, tunnels = await with_tunnels(rig, await serve(websocket()))
        other = await rig.session(await serve())
        revoked = await rig.opened(other, iat=int(time.time()) - 2)
        await rig.bus.revoke(sid=other.sid)
        await rig.settled()
        responded = await metric(rig, "fumarole_gateway_tunnels_total")
        first, second = await workers_of(rig)
        os.kill(first["pid"], signal.SIGKILL)
        # Meanwhile no new request is refused, and no revoked grant is accepted.
        while (await workers_of(rig))[0]["restarts"] == 0:
            assert (await rig.get(session, fields=[("Cookie", cookie)])).status != 404
            assert await rig.status(other, revoked) == 401
        found = await until_workers(rig, accepting=True)
        assert [one["restarts"] for one in found] == [1, 0]
        assert found[0]["hash"] == found[1]["hash"]
        assert found[0]["pid"] != first["pid"]
        assert await metric(rig, 'fumarole_gateway_worker_ends_total{why="killed"}') == 1
        assert await metric(rig, "fumarole_gateway_tunnels_total") == responded
        # The other worker's tunnels continue, and a revocation still ends them.
        assert found[1]["pid"] == second["pid"]
        assert found[1]["open"] >= 2
        tunnels += await tunnels_on_each(rig, session, cookie)
        await rig.bus.remove(session.sid)
        await rig.settled()
        deadline = time.monotonic() + 5.0
        while any(one["open"] for one in await workers_of(rig)):
            assert time.monotonic() < deadline
            rig.close_streams()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("events", [1, 300])
async def test_a_stalled_worker_is_replaced_without_delaying_clients(
    tmp_path: Path, serve: Serve, events: int
) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        session, cookie, tunnels = await with_tunnels(rig, await serve(websocket()))
        first, _ = await workers_of(rig)
        os.kill(first["pid"], signal.SIGSTOP)
        # The other worker serves new requests; a revocation reaches it at once.
        for _ in range(10):
            assert (await rig.get(session)).status == 401
        start = time.monotonic()
        await rig.bus.revoke(sid=session.sid)
        # Either far more data than its socket, or an unbounded journal, would hold; or so little
        # that
        # the kernel takes it without a read by the worker.
        filler = rig.make_session(await serve(), message="x" * 3000)
        for _ in range(events):
            await rig.announce_change(filler)
        closed = await asyncio.gather(*(_closed(tunnel) for tunnel in tunnels))
        assert any(closed)
        found = await until_workers(rig, accepting=True, seq=rig.bus.seq)
        assert found[0]["restarts"] == 1
        assert time.monotonic() - start < RESTART_SECONDS + 10.0
        assert await metric(rig, 'fumarole_gateway_worker_ends_total{why="stalled"}') == 1
        # The stopped worker's connections have ended with it.
        closes = [await _closed(tunnel, 2.0) for tunnel in tunnels]
        assert all(closes)
        assert await rig.status(session, cookie) == 401


async def _closed(tunnel: Stream, seconds: float = 1.0) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await tunnel.read_to_end()
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


async def test_workers_exit_when_the_supervisor_dies(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        await with_tunnels(rig, await serve(websocket()))
        family = family_of(rig)
        assert len(family) == 4
        first, _ = await workers_of(rig)
        os.kill(first["pid"], signal.SIGSTOP)  # also for a process that does not run
        await rig.process.kill()
        await until_gone(family, 5.0)


async def test_the_gateway_fails_when_the_fork_server_dies(tmp_path: Path) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        family = family_of(rig)
        workers = {one["pid"] for one in await workers_of(rig)}
        (fork_server,) = family - workers - {rig.process.pid}
        os.kill(fork_server, signal.SIGKILL)
        assert await rig.process.wait(10.0) == 1
        await until_gone(family, 5.0)


async def test_on_sigterm_all_workers_drain(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2", "DRAIN_SECONDS": "3"}) as rig:
        _, _, tunnels = await with_tunnels(rig, await serve(websocket()))
        family = family_of(rig)
        # A terminal and systemd do the same: every process gets the signal.
        for pid in family:
            os.kill(pid, signal.SIGTERM)
        closes = await asyncio.gather(*(last_frame(tunnel, 5.0) for tunnel in tunnels))
        assert {frame.code for frame in closes} == {1001}
        assert await rig.process.wait(8.0) == 0
        await until_gone(family, 1.0)
        with pytest.raises(OSError, match=r"."):
            await rig.connect()


async def test_a_second_signal_ends_all_workers_at_once(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2", "DRAIN_SECONDS": "60"}) as rig:
        await with_tunnels(rig, await serve(websocket()))
        family = family_of(rig)
        rig.process.signal(signal.SIGTERM)
        async with asyncio.timeout(5.0):
            while (await rig.process.ops_response("/readyz")).status != 503:
                await asyncio.sleep(0.01)
        rig.process.signal(signal.SIGTERM)
        await rig.process.wait(5.0)
        assert await until_gone(family, 2.0) < 2.0


async def test_a_single_worker_runs_in_one_process(rig: Rig, tmp_path: Path) -> None:
    async with running_rig(tmp_path) as alone:
        assert family_of(alone) == {alone.process.pid}
        assert "workers" not in await alone.debug()


async def test_with_a_lost_bus_every_worker_ends_its_sessions(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2", "BUS_GRACE_SECONDS": "0"}) as rig:
        session, cookie, tunnels = await with_tunnels(rig, await serve(websocket()))
        rig.beating = False
        rig.server.kill()
        closes = await asyncio.gather(*(last_frame(tunnel, 12.0) for tunnel in tunnels))
        assert {frame.code for frame in closes} == {1012}
        for _ in range(6):
            assert await rig.status(session, cookie) == 503
        rig.server.start()
        await rig.bus.rebuild()
        await rig.becomes(session, cookie, 200)
        await rig.settled()


async def test_workers_started_without_redis_respond_503_and_serve_once_it_is_there(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}, start=False) as rig:
        rig.beating = False
        rig.server.kill()
        await rig.process.start(ready=False)
        session = rig.make_session(await serve())
        # One worker refuses requests; the others wait until there are routes to serve.
        assert (await rig.get(session)).status == 503
        assert (await rig.process.ops_response("/readyz")).status == 503
        rig.server.start()
        await rig.bus.rebuild()
        await rig.process.until_ready()
        await until_workers(rig, accepting=True, restarts=0)
        await rig.bus.upsert(session.sid, session.route)
        await rig.settled()
        assert (await rig.get(session)).status == 401


async def test_a_worker_started_without_redis_accepts_no_connections(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        session = await rig.session(await serve())
        cookie = await rig.opened(session)
        rig.beating = False
        rig.server.kill()
        first, second = await workers_of(rig)
        os.kill(first["pid"], signal.SIGKILL)
        deadline = time.monotonic() + RESTART_SECONDS
        while not (found := (await workers_of(rig))[0]).get("reasons"):
            assert time.monotonic() < deadline
            assert await rig.status(session, cookie) == 200
            await asyncio.sleep(0.05)
        assert (found["restarts"], found["accepting"]) == (1, False)
        for _ in range(6):
            assert await rig.status(session, cookie) == 200
        assert (await rig.process.ops_response("/readyz")).status == 200
        rig.server.start()
        await rig.bus.rebuild()
        found, other = await until_workers(rig, accepting=True)
        assert other["pid"] == second["pid"]
        assert found["hash"] == other["hash"]


async def test_a_suspended_gateway_serves_no_route_withdrawn_meanwhile(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        session = await rig.session(await serve())
        cookie = await rig.opened(session, iat=int(time.time()) - 2)
        assert await rig.status(session, cookie) == 200
        family = family_of(rig)
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        await rig.bus.revoke(sid=session.sid)
        # The kernel accepts the connections; the workers find all of them at once when they wake.
        asked = request("GET", "/", host=session.host, fields=[("Cookie", cookie)])
        waiting = [asyncio.create_task(rig.ask(asked, seconds=60.0)) for _ in range(24)]
        await asyncio.sleep(SUSPENDED_SECONDS + 0.5)
        for pid in family:
            os.kill(pid, signal.SIGCONT)
        assert {response.status for response in await asyncio.gather(*waiting)} <= {401, 503}
        await until_workers(rig, accepting=True, seq=rig.bus.seq)
        while (status := (await rig.ask(asked, seconds=60.0)).status) != 401:
            assert status == 503
