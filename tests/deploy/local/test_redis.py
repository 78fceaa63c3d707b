"""Tests the demo's Redis: two users with their own rights, and no visible secret."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.exceptions import NoPermissionError, RedisError

from deploy.local.redis import ACL, RedisSetup, write_redis_setup
from shared.bus import (
    BusReader,
    Keys,
    Publisher,
    ReportReader,
    ReportWriter,
    SignOutReader,
    SignOutWriter,
    connect,
)
from shared.events import GrantRevoked, event_time
from shared.reports import Activity, encode_report
from tests.shared.samples import SID, encode, make_route, make_sid

NOW = 1_800_000_000.0
KEYS = Keys("demo")
ROOT = Path(__file__).parents[3]


async def answers(path: Path) -> bool:
    """Return whether a server accepts connections: the socket file exists a moment earlier."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


@pytest.fixture
async def setup(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisSetup]:
    setup = write_redis_setup(tmp_path_factory.mktemp("r"), "demo")
    process = await asyncio.create_subprocess_exec(
        *setup.command, stdout=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(10):
        while not await answers(setup.socket):
            await asyncio.sleep(0.01)
    yield setup
    process.terminate()
    await process.wait()


async def test_the_controller_publishes_and_a_gateway_follows(setup: RedisSetup) -> None:
    writer, viewer = connect(setup.urls["controller"]), connect(setup.urls["gateway"])
    publisher, reader = Publisher(writer, KEYS, term=1), BusReader(viewer, KEYS)
    await publisher.rebuild({SID: encode(make_route())}, {}, epoch="e", now=NOW)
    async with reader.subscribe() as messages:
        await publisher.revoke(at=NOW, sid=SID)
        assert b"GrantRevoked" in await asyncio.wait_for(anext(messages), 5)
    await publisher.beat(now=NOW)
    snapshot = await reader.snapshot()
    assert snapshot is not None
    assert (snapshot.head.routes, snapshot.head.revoked) == (1, 1)
    mark = await reader.mark_used("t", "open", kept_until=NOW + 60, now=NOW)
    assert mark.before is None
    await writer.aclose()
    await viewer.aclose()


async def test_the_documented_redis_rights_are_sufficient_and_necessary(setup: RedisSetup) -> None:
    writer, viewer = connect(setup.urls["controller"]), connect(setup.urls["gateway"])
    publisher, reader = Publisher(writer, KEYS, term=1), BusReader(viewer, KEYS)
    # Enough routes for several pages.
    routes = {make_sid(n): encode(make_route(make_sid(n))) for n in range(2500)}
    revoked = {f"jti:{n}": NOW for n in range(700)}
    await publisher.rebuild(routes, revoked, epoch="e", now=NOW)
    await publisher.upsert(SID, encode(make_route()), now=NOW)
    assert await reader.head() is not None
    assert len((await reader.log_after(0)).events) == 1
    snapshot = await reader.snapshot()
    assert snapshot is not None
    assert (len(snapshot.routes), snapshot.revoked) == (2501, revoked)
    event = GrantRevoked(epoch="-", seq=0, at=event_time(NOW), sid=SID)
    async with reader.subscribe() as messages:
        await publisher.notice(event)
        assert b"GrantRevoked" in await asyncio.wait_for(anext(messages), 5)
    await writer.aclose()
    await viewer.aclose()


def test_a_gateways_commands_are_exactly_the_documented_ones() -> None:
    (line,) = (one for one in ACL.read_text().splitlines() if one.startswith("user gateway"))
    commands = line[line.index("-@all") :].split()[1:]
    text = " ".join((ROOT / "docs" / "proxy-events.md").read_text().split())
    assert f"`{' '.join(commands)}`" in text


async def test_a_gateway_writes_reports_which_the_controller_reads(setup: RedisSetup) -> None:
    writer, viewer = connect(setup.urls["controller"]), connect(setup.urls["gateway"])
    reports = ReportWriter(viewer, KEYS, "g")
    await reports.write(b"{}")
    part = encode_report(Activity(at=NOW, subs=("ada",)))
    await reports.write_activities({SID: part})
    await SignOutWriter(viewer, KEYS).add(SID, "t")
    (request,) = (await SignOutReader(writer, KEYS).after("0-0", limit=1)).entries
    assert (request.sid, request.jti) == (SID, "t")
    activities = await ReportReader(writer, KEYS).activities_of([SID], now=NOW)
    assert activities[SID].subs == ("ada",)
    await reports.leave()
    activities = await ReportReader(writer, KEYS).activities_of([SID], now=NOW)
    assert activities[SID].subs == ()
    await writer.aclose()
    await viewer.aclose()


async def test_a_gateway_can_write_only_marks_and_reports(setup: RedisSetup) -> None:
    viewer = connect(setup.urls["gateway"])
    for forbidden in (
        viewer.hset(KEYS.routes, "x", "y"),
        viewer.delete(KEYS.head),
        viewer.set(KEYS.head, "x"),
        viewer.publish(KEYS.events, "x"),
        viewer.zadd(KEYS.revoked, {"x": 1.0}),
        viewer.flushall(),
        viewer.eval("return 1", 0),
        viewer.keys(),
        viewer.get(Keys("other").used("t")),
        viewer.get(KEYS.gateway("g")),
        viewer.hgetall(KEYS.activity(SID)),
        viewer.hset(KEYS.head, "term", "9"),
        viewer.expire(KEYS.routes, 1),
        viewer.xadd(KEYS.log, {"event": "x"}),
        viewer.xadd(KEYS.events, {"event": "x"}),
        viewer.xrange(KEYS.asks),
        viewer.hset(Keys("other").activity(SID), "x", "y"),
    ):
        with pytest.raises(NoPermissionError):
            await forbidden
    await viewer.aclose()


async def test_the_controller_does_not_touch_foreign_keys(setup: RedisSetup) -> None:
    writer = connect(setup.urls["controller"])
    for forbidden in (
        writer.function_flush(),
        writer.script_flush(),
        writer.flushdb(),
        writer.keys(),
        writer.get("other"),
        writer.get(Keys("other").head),
        writer.config_get("*"),
    ):
        with pytest.raises(NoPermissionError):
            await forbidden
    await writer.aclose()


async def test_redis_refuses_clients_without_password(setup: RedisSetup) -> None:
    stranger = connect(f"unix://{setup.socket}")
    with pytest.raises(RedisError):
        await stranger.ping()
    await stranger.aclose()


def test_no_password_is_in_an_argument_a_file_or_a_repr(setup: RedisSetup) -> None:
    passwords = [url.split(":")[2].split("@")[0] for url in setup.urls.values()]
    folder = setup.socket.parent
    shown = [repr(setup), *setup.command]
    shown += [path.read_text() for path in folder.iterdir() if path.is_file()]
    assert not [text for text in shown for password in passwords if password in text]
    assert isinstance(folder, Path)


def test_the_documented_commands_fill_the_users_file_in(tmp_path: Path) -> None:
    page = (ROOT / "docs/proxy-events.md").read_text()
    (block,) = [one for one in page.split("```") if one.startswith("sh\ncontroller=")]
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    script = block.removeprefix("sh\n") + 'printf "%s " "$controller" "$gateway"'
    done = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in done.stdout.split()]
    wanted = ACL.read_text().format(instance="default", controller=hashes[0], gateway=hashes[1])
    assert (tmp_path / "users.acl").read_text() == wanted
