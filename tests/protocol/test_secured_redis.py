"""Tests Sentinels and a Redis Cluster behind TLS, between a publisher and a gateway."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from controller.jobs.spec.accepted import public_spec
from controller.store.database import Store
from controller.store.instance import ensure_position
from controller.store.jobs.job_rows import insert_job
from shared.bus import BusReader, Keys, connect
from shared.errors import BusUnavailable
from tests.clock import Clock
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_record
from tests.controller.sessions.publishing import World, publishing
from tests.gateway.process import GatewayProcess
from tests.redis_nodes import Node, Site, free_ports, running
from tests.redis_secured import Secured, secured_cluster, secured_sentinels
from tests.redis_tls import Authority

pytestmark = pytest.mark.needs("redis-tls")

KEYS = Keys("test")
JOB = make_job(interactive={"lab": {"kind": "web", "port": 8888}})
UNTRUSTED = "its certificate is not trusted: self-signed certificate in certificate chain"
WRONG_PASSWORD = "it does not take this user with this password"
NO_MASTER = "no Sentinel names a master: "
Start = Callable[[Path, Keys], AbstractAsyncContextManager[Secured]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(f"sqlite:///{tmp_path}/store.db")
    await opened.open()
    async with opened.write() as transaction:
        await ensure_position(transaction, new_identity="test")
        record = make_record(state="RUNNING", message=None, spec=public_spec(JOB))
        await insert_job(transaction, record, labels={})
    yield opened
    await opened.close()


async def refusal(url: str) -> str:
    """Return the error message for a Redis that cannot be used."""
    client = connect(url)
    try:
        with pytest.raises(BusUnavailable) as refused:
            await BusReader(client, KEYS).head()
        return str(refused.value).removeprefix("Redis did not answer: ")
    finally:
        await client.aclose()


async def until_reported(gateway: GatewayProcess, why: str) -> None:
    """Wait until the follower is not ready and reports *why*."""

    async def told() -> bool:
        response = await gateway.ask_ops("/readyz")
        return response.status == 503 and why in response.text

    await eventually(told, what=f"it does not say: {why}")


async def until_publisher_reports(world: World, why: str) -> None:
    """Wait until the publisher is not ready and reports *why*."""

    async def told() -> bool:
        return why in str(world.publisher.problems)

    await eventually(told, what=f"it does not say: {why}")


async def until_equal(gateway: GatewayProcess, world: World) -> str:
    """Wait until both are ready and the gateway has everything published; return the epoch."""

    async def equal() -> str | None:
        ready = await gateway.ask_ops("/readyz")
        body = json.loads((await gateway.ask_ops("/debug/routes")).text)
        wanted = world.publisher.describe()
        same = [body.get(name) == wanted[name] for name in ("epoch", "seq", "hash", "routes")]
        return (
            wanted["epoch"] if ready.status == 200 and wanted["published"] and all(same) else None
        )

    return await eventually(equal, what="they are not ready")


async def go_on_through_a_failover(secured: Secured, folder: Path, store: Store) -> str:
    """Use a wrong CA, then a wrong password, then lose the master; return the gateway's log."""
    site, trusted = secured.site, Authority(folder / "trusted")
    gateway = GatewayProcess(folder, secured.url("gateway", authority=trusted))
    client = connect(secured.url("controller", authority=trusted))
    async with publishing(store, client, Clock(time.time())) as world:
        try:
            await gateway.start(ready=False)
            await until_reported(gateway, UNTRUSTED)
            await until_publisher_reports(world, UNTRUSTED)
            await secured.set_password("gateway", "of-before")
            # Authorities are read with each connection.
            trusted.file.write_bytes(secured.authority.file.read_bytes())
            await until_reported(gateway, WRONG_PASSWORD)
            await secured.set_password("gateway", secured.passwords["gateway"])
            await until_equal(gateway, world)
            sids = [await world.open(endpoint="lab")]
            epoch = await until_equal(gateway, world)
            await site.caught_up()
            site.master.kill()
            await take_over(site)
            await eventually(lambda: until_another(epoch, gateway, world))
            sids.append(await world.open(endpoint="lab"))
            await until_equal(gateway, world)
            snapshot = await world.reader.snapshot()
            assert snapshot is not None
            assert set(snapshot.routes) == set(sids)
        finally:
            gateway.kill()
    await client.aclose()
    return gateway.log()


async def until_another(epoch: str, gateway: GatewayProcess, world: World) -> bool:
    """Return whether both are equal again, under another epoch."""
    return await until_equal(gateway, world) != epoch


async def take_over(site: Site) -> None:
    """Promote the replica to master."""
    if "cluster" in site.url:
        await site.replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
    await site.replica.until("'master'", "INFO", "replication")


@pytest.mark.parametrize("start", [secured_sentinels, secured_cluster])
async def test_both_processes_wait_for_a_trusted_redis_and_continue_after_a_failover(
    start: Start, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(tmp_path, KEYS) as secured:
        for url, why in wrong_ways(secured, tmp_path):
            said = await refusal(url)
            assert said in why, url
        logged = await go_on_through_a_failover(secured, tmp_path, store) + caplog.text
    assert UNTRUSTED in logged
    assert "may not do this" not in logged
    assert not any(one in logged for one in secured.passwords.values())


def wrong_ways(secured: Secured, folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield URLs that must fail, and the allowed error messages of each."""
    asked = NO_MASTER if "sentinel" in secured.site.url else ""
    others = Authority(folder / "others")
    yield secured.url("gateway", authority=others), (asked + UNTRUSTED,)
    yield secured.url("gateway", password="canary"), (WRONG_PASSWORD,)
    if asked:
        yield secured.url("gateway", sentinel_password="canary"), (asked + WRONG_PASSWORD,)
    # The port speaks TLS: the message depends on how far the server had read.
    ends = ("it ended the connection", "Connection reset by peer")
    yield secured.url("gateway", tls=False), tuple(asked + end for end in ends)


@pytest.mark.parametrize(
    ("scheme", "path", "why"),
    [
        ("rediss+sentinel", "/main", f"{NO_MASTER}no TLS with it: nobody answered the handshake"),
        ("rediss+cluster", "", "no TLS with it: nobody answered the handshake"),
    ],
)
async def test_no_password_is_sent_to_a_port_without_tls(
    scheme: str, path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.bus.tls.HANDSHAKE_SECONDS", 0.2)
    node = Node(tmp_path, free_ports(1)[0])
    async with running([node]):
        url = f"{scheme}://gateway:canary@127.0.0.1:{node.port}{path}"
        assert await refusal(url) == why
        assert "cmdstat_auth" not in str(await node.ask("INFO", "commandstats"))
