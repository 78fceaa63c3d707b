"""Tests one Redis, Sentinels and a cluster by URL: on real servers, with a failover."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from shared.bus import BusReader, Keys, Publisher, check_url, cluster, connect, connection
from shared.bus.urls import parse_url
from shared.errors import BusUnavailable, PublishRefused
from shared.events import RouteUpserted, decode_event
from tests.redis_nodes import Node, Site, cluster_site, free_ports, running, sentinel_site
from tests.shared.samples import SID, encode, make_route

KEYS = Keys("test")
ROUTE = encode(make_route())
FAILOVER_SECONDS = 20.0


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "rediss://u:p@redis.example:6380/0?ssl_ca_certs=/dev/null",
        "unix://gateway:secret@/run/redis.sock",
        "redis+sentinel://u:p@a:26379,b/main/2?sentinel_username=s&sentinel_password=t",
        "rediss+sentinel://[::1]:26379/main",
        "redis+cluster://u:p%40@a:7000,b:7001",
        "rediss+cluster://a?ssl_ca_certs=/dev/null",
    ],
)
def test_valid_redis_urls_are_accepted(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1",
        "redis+sentinel://secret@a:26379",
        "redis+sentinel:///main",
        "redis+cluster://secret@a/1",
        "redis+cluster://secret@a:x",
        "redis+cluster://secret@a:0",
        "redis+cluster://secret@a:٧٠٠٠",
        "redis+other://secret@a",
        "redis+cluster://secret@a?password=x",
        "redis://secret@a,b",
        "redis://secret@a/main",
        "redis://",
        "unix://secret@a/run/redis.sock",
        "unix://secret@",
        "redis://secret@a?ssl_ca_certs=/etc/ca.pem",
        "redis+cluster://secret@a?ssl_certfile=/etc/tls.crt",
        "unix://secret@/run/redis.sock?ssl_ca_certs=/etc/ca.pem",
        "redis://secret@a?sentinel_password=secret",
        "rediss://secret@a?ssl_keyfile=/etc/tls.key",
        "rediss://secret@a?ssl_cert_reqs=none",
        "rediss://secret@a?ssl_check_hostname=false",
        "127.0.0.1:6379",
    ],
)
def test_a_malformed_redis_url_is_refused_without_being_printed(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|node|option|path") as refused:
        check_url(url)
    assert "secret" not in str(refused.value)


def test_a_redis_url_with_an_unreadable_file_is_refused_by_its_name() -> None:
    with pytest.raises(OSError, match=r"/no/ca\.pem") as refused:
        check_url("rediss://u:secret@a?ssl_ca_certs=/no/ca.pem")
    assert "secret" not in str(refused.value)


def test_several_nodes_with_their_ports_and_credentials() -> None:
    place = parse_url("rediss+cluster://ada:p%40ss@a,b:7001,[::1]:7002,[fe80::1]")
    assert place.nodes == (("a", 6379), ("b", 7001), ("::1", 7002), ("fe80::1", 6379))
    assert place.options == {"username": "ada", "password": "p@ss"}
    assert place.trust == {}
    assert "p@ss" not in repr(place)
    place = parse_url("redis+sentinel://s/main/3?sentinel_password=q")
    assert (place.service, place.options["db"], place.sentinel_options) == (
        "main",
        3,
        {"password": "q"},
    )


def test_a_url_with_the_line_end_of_its_file_is_read() -> None:
    assert parse_url("redis://ada:pw@[::1]:7001/2\r\n") == parse_url("redis://ada:pw@[::1]:7001/2")


async def publish_and_follow(site: Site) -> None:
    """Publish a table, events and marks through *site*, also after its master has died."""
    client, follower = connect(site.url), connect(site.url)
    try:
        publisher, reader = Publisher(client, KEYS, term=1), BusReader(follower, KEYS)
        await publisher.rebuild({}, {}, epoch="e1", now=time.time())
        async with reader.subscribe() as messages:
            await publisher.upsert(SID, ROUTE, now=time.time())
            event = decode_event(await asyncio.wait_for(anext(messages), 5))
        assert isinstance(event, RouteUpserted)
        mark = await reader.mark_used("t", "open", kept_until=time.time() + 60, now=time.time())
        assert (mark.before, mark.sure) == (None, True)
        await site.caught_up()
        site.master.kill()
        await _take_over(site)
        # Each client finds the new master by itself, and the other nodes learn of it one by one.
        await _until_answered(reader)
        await _until_answered(publisher)
        # All replicated data is there, but its marks cannot be trusted.
        mark = await reader.mark_used("u", "open", kept_until=time.time() + 60, now=time.time())
        assert not mark.sure
        with pytest.raises(PublishRefused) as refused:
            await publisher.beat(now=time.time())
        assert refused.value.reason == "server"
        assert await publisher.has_lost()
        await publisher.rebuild({SID: ROUTE}, {}, epoch="e2", now=time.time(), since=time.time())
        async with reader.subscribe() as messages:
            await publisher.upsert(SID, ROUTE, now=time.time())
            assert decode_event(await asyncio.wait_for(anext(messages), 5)).epoch == "e2"
        mark = await reader.mark_used("v", "open", kept_until=time.time() + 60, now=time.time())
        assert mark.sure
    finally:
        await client.aclose()
        await follower.aclose()


async def _take_over(site: Site) -> None:
    if "cluster" in site.url:
        await site.replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        await site.replica.until("cluster_state:ok", "CLUSTER", "INFO")
    await site.replica.until("'master'", "INFO", "replication")


async def _until_answered(reader: BusReader | Publisher) -> None:
    async with asyncio.timeout(FAILOVER_SECONDS):
        while True:
            try:
                assert await reader.head() is not None
                return
            except BusUnavailable:
                await asyncio.sleep(0.05)


async def test_sentinels_name_the_master_also_after_a_failover(tmp_path: Path) -> None:
    async with sentinel_site(tmp_path) as site:
        await publish_and_follow(site)


async def test_cluster_redirections_are_followed_without_reading_the_command_table(
    tmp_path: Path,
) -> None:
    async with cluster_site(tmp_path, key_slot(KEYS.head.encode())) as site:
        site.url = f"redis+cluster://127.0.0.1:{site.other.port},127.0.0.1:{site.replica.port}"
        await publish_and_follow(site)
        calls = str(await site.other.ask("INFO", "commandstats"))
        assert "cmdstat_command" not in calls


@asynccontextmanager
async def a_migrating_slot(
    folder: Path,
) -> AsyncIterator[tuple[Redis, Callable[[], Awaitable[None]]]]:
    """Yield a client of a cluster whose slot migrates, and a function that ends the migration.

    The head is still at the source; new keys belong to the target.
    """
    slot = key_slot(KEYS.head.encode())
    async with cluster_site(folder, slot) as site:
        source, target = site.master, site.other
        client = connect(site.url)
        names = [str(await node.ask("CLUSTER", "MYID")) for node in (source, target)]

        async def end() -> None:
            keys = await source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
            where = ("127.0.0.1", target.port, "", 0, 1000)
            await source.ask("MIGRATE", *where, "KEYS", *keys)
            # The source, which has no slot left then, becomes a replica of the target.
            await target.ask("CLUSTER", "SETSLOT", slot, "NODE", names[1])

        try:
            await Publisher(client, KEYS, term=1).rebuild({}, {}, epoch="e1", now=time.time())
            await target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
            await source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
            yield client, end
        finally:
            await client.aclose()


async def test_calls_wait_for_a_cluster_slot_that_migrates(tmp_path: Path) -> None:
    async with a_migrating_slot(tmp_path) as (client, end):
        reader, now = BusReader(client, KEYS), time.time()
        mark = asyncio.create_task(reader.mark_used("t", "open", kept_until=now + 60, now=now))
        await asyncio.sleep(0.3)
        assert not mark.done()
        await end()
        marked = await asyncio.wait_for(mark, 2)
        assert (marked.before, marked.head is not None) == (None, True)
        again = await reader.mark_used("t", "open", kept_until=now + 60, now=now)
        assert again.before == "open"


async def test_a_cluster_slot_that_stays_between_nodes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_migrating_slot(tmp_path) as (client, _end):
        monkeypatch.setattr(cluster, "CALL_SECONDS", 0.3)
        reader, now = BusReader(client, KEYS), time.time()
        with pytest.raises(BusUnavailable, match=r"the slot is on its way to another node$"):
            await reader.mark_used("t", "open", kept_until=now + 60, now=now)
        assert await reader.head() is not None  # its key is still at the source


@asynccontextmanager
async def a_cluster_whose_master_hangs(folder: Path) -> AsyncIterator[tuple[Redis, Redis]]:
    """Yield a client that knew the master, and one that knew the replica which took over."""
    async with cluster_site(folder, key_slot(KEYS.head.encode())) as site:
        client = connect(
            f"redis+cluster://127.0.0.1:{site.master.port},127.0.0.1:{site.other.port}"
        )
        after = connect(f"redis+cluster://127.0.0.1:{site.replica.port}")
        try:
            await Publisher(client, KEYS, term=1).rebuild({}, {}, epoch="e1", now=time.time())
            await site.caught_up()
            os.kill(site.master.pid, signal.SIGSTOP)
            await _take_over(site)
            yield client, after
        finally:
            os.kill(site.master.pid, signal.SIGCONT)
            await client.aclose()
            await after.aclose()


async def test_calls_leave_a_cluster_node_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.bus.connection.CALL_SECONDS", 0.5)
    async with a_cluster_whose_master_hangs(tmp_path) as (client, _after):
        await _until_answered(BusReader(client, KEYS))


async def test_calls_with_a_shorter_deadline_leave_a_cluster_node_that_hangs(
    tmp_path: Path,
) -> None:
    async with a_cluster_whose_master_hangs(tmp_path) as (client, _after):
        reader = BusReader(client, KEYS)
        async with asyncio.timeout(FAILOVER_SECONDS):
            while True:
                try:
                    async with asyncio.timeout(0.5):
                        assert await reader.head() is not None
                        return
                except (BusUnavailable, TimeoutError):
                    await asyncio.sleep(0.05)


async def test_subscriptions_leave_a_cluster_node_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.bus.reader.CALL_SECONDS", 0.5)
    async with a_cluster_whose_master_hangs(tmp_path) as (client, after):
        reader, publisher = BusReader(client, KEYS), Publisher(after, KEYS, term=1)
        async with asyncio.timeout(FAILOVER_SECONDS):
            while True:
                try:
                    async with reader.subscribe() as messages:
                        await publisher.rebuild({}, {}, epoch="e2", now=time.time())
                        assert decode_event(await anext(messages)).epoch == "e2"
                        return
                except BusUnavailable:
                    await asyncio.sleep(0.05)


async def test_a_cluster_without_the_slot_is_reported(tmp_path: Path) -> None:
    port, bus = free_ports(2)
    options = ("--cluster-enabled", "yes", "--cluster-port", str(bus))
    async with running([Node(tmp_path, port, *options)]):
        client = connect(f"redis+cluster://127.0.0.1:{port}")
        with pytest.raises(BusUnavailable, match=r"answer: the slot is not served here$"):
            await BusReader(client, KEYS).head()
        await client.aclose()


async def test_a_redis_that_hangs_is_reported_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_SECONDS", 0.2)
    (port,) = free_ports(1)
    node = Node(tmp_path, port)
    async with running([node]):
        client = connect(f"redis://127.0.0.1:{port}")
        os.kill(node.pid, signal.SIGSTOP)
        try:
            with pytest.raises(BusUnavailable, match=r"answer: it does not respond in time$"):
                await BusReader(client, KEYS).head()
        finally:
            os.kill(node.pid, signal.SIGCONT)
        await client.aclose()


async def test_a_response_of_a_replica_is_not_used(tmp_path: Path) -> None:
    one, two = free_ports(2)
    master = Node(tmp_path / "a", one)
    replica = Node(tmp_path / "b", two, "--replicaof", f"127.0.0.1 {one}")
    async with running([master, replica]):
        await replica.until("'up'", "INFO", "replication")
        client, behind = connect(f"redis://127.0.0.1:{one}"), connect(f"redis://127.0.0.1:{two}")
        await Publisher(client, KEYS, term=1).rebuild({}, {}, epoch="e1", now=time.time())
        reader = BusReader(behind, KEYS)
        for call in (reader.head, reader.snapshot):
            with pytest.raises(BusUnavailable):
                await call()
        with pytest.raises(BusUnavailable):
            await reader.log_after(0)
        await client.aclose()
        await behind.aclose()


async def test_a_restarted_server_is_detected(tmp_path: Path) -> None:
    node = Node(tmp_path / "a", free_ports(1)[0], "--appendonly", "yes", "--appendfsync", "always")
    async with running([node]):
        client: Redis = connect(f"redis://127.0.0.1:{node.port}")
        publisher = Publisher(client, KEYS, term=1)
        await publisher.rebuild({SID: ROUTE}, {}, epoch="e1", now=time.time())
        await publisher.beat(now=time.time())
        node.kill()
        node.start()
        await node.until("True", "PING")
        with pytest.raises(PublishRefused) as refused:
            await publisher.beat(now=time.time())
        # The table is complete, but nobody knows which other acknowledged writes the server lost.
        assert refused.value.reason == "server"
        await client.aclose()
