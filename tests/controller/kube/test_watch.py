"""Tests watches: an initial list, then every change, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from math import inf
from pathlib import Path

import pytest

from controller.kube import watch as module
from controller.kube.errors import KubeError, Throttled, Unavailable
from controller.kube.kinds import PODS
from controller.kube.watch import (
    Backoff,
    Changed,
    Deleted,
    Listed,
    WatchConnection,
    WatchEvent,
    watch,
)
from tests.controller.kube.api_server import Script, gone, listing, says, serving, streams, thing


async def events(script: Script, folder: Path, count: int) -> list[WatchEvent]:
    async with serving(script, folder) as kube:
        stream = watch(kube, PODS, labels="mine=yes")
        async with aclosing(stream):
            return [await anext(stream) for _ in range(count)]


def names(seen: list[WatchEvent]) -> list[str]:
    shown = []
    for event in seen:
        match event:
            case Listed(objects):
                shown.append("=" + ",".join(one["metadata"]["name"] for one in objects))
            case Changed(one):
                shown.append("+" + one["metadata"]["name"])
            case Deleted(one):
                shown.append("-" + one["metadata"]["name"])
    return shown


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)


async def test_a_watch_yields_all_objects_and_then_changes(tmp_path: Path) -> None:
    script = Script(
        listing(thing("a", "1"), version="5"),
        streams(
            ("ADDED", thing("b", "6")), ("MODIFIED", thing("a", "7")), ("DELETED", thing("b", "8"))
        ),
    )
    assert names(await events(script, tmp_path, 4)) == ["=a", "+b", "+a", "-b"]
    assert script.requests[1][2]["resourceVersion"] == "5"
    assert script.requests[1][2]["labelSelector"] == "mine=yes"


async def test_the_reason_of_a_broken_watch_is_reported_until_it_resumes(tmp_path: Path) -> None:
    reported: list[str | None] = []

    def tell(trouble: KubeError | None) -> None:
        reported.append(None if trouble is None else type(trouble).__name__)

    script = Script(
        says({}, 503),
        says({}, 429, **{"Retry-After": "0"}),
        listing(version="5"),
        # An open watch without events is not an error.
        streams(("ADDED", thing("a", "6")), then="cut"),
        says({}, 500),
        streams(("ADDED", thing("b", "7")), then="hang"),
    )
    async with serving(script, tmp_path) as kube:
        stream = watch(kube, PODS, report=tell)
        async with aclosing(stream):
            seen = [await anext(stream) for _ in range(3)]
    assert [type(one) for one in seen] == [Listed, Changed, Changed]
    trouble = [
        one for one, before in zip(reported, [None, *reported], strict=False) if one != before
    ]
    assert trouble[:3] == ["Unavailable", "Throttled", None]
    assert trouble[-2:] == ["Unavailable", None]


async def test_an_abandoned_connection_is_resumed_from_its_resource_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 3600.0)  # the server does not give up
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 3600.0)
    connection, reported = WatchConnection(), list[KubeError | None]()
    script = Script(
        listing(version="5"),
        streams(("ADDED", thing("a", "6")), then="hang"),
        streams(("ADDED", thing("b", "7")), then="hang"),
    )
    async with serving(script, tmp_path) as kube:
        connection.renew()  # no connection exists yet
        assert connection.opened.is_set()
        stream = watch(kube, PODS, report=reported.append, connection=connection)
        async with aclosing(stream), asyncio.timeout(60):
            assert names([await anext(stream) for _ in range(2)]) == ["=", "+a"]
            connection.renew()
            assert not connection.opened.is_set()
            assert names([await anext(stream)]) == ["+b"]
            assert connection.opened.is_set()
    assert script.requests[2][2]["resourceVersion"] == "6"
    assert set(reported) == {None}, "it was no trouble"


async def test_a_reconnect_request_ends_the_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 3600.0)
    connection, failed = WatchConnection(), asyncio.Event()
    script = Script(says({}, 503), listing(version="5"), streams(then="hang"))
    async with serving(script, tmp_path) as kube:
        watching = watch(kube, PODS, report=lambda _: failed.set(), connection=connection)
        async with aclosing(watching), asyncio.timeout(60):
            first = asyncio.ensure_future(anext(watching))
            await failed.wait()
            await asyncio.sleep(0)
            connection.renew()
            assert names([await first]) == ["="]


@pytest.mark.parametrize("then", ["end", "cut"])
async def test_an_ended_stream_is_resumed_from_its_resource_version(
    tmp_path: Path, then: str
) -> None:
    script = Script(
        listing(version="5"),
        streams(("ADDED", thing("a", "6")), ("BOOKMARK", thing("", "9")), then=then),
        streams(("ADDED", thing("b", "10")), then="hang"),
    )
    assert names(await events(script, tmp_path, 3)) == ["=", "+a", "+b"]
    assert [query["resourceVersion"] for *_, query in script.requests[1:]] == ["5", "9"]


async def test_an_expired_resource_version_lists_again(tmp_path: Path) -> None:
    script = Script(
        listing(thing("a", "1"), version="5"),
        streams(gone()),
        listing(thing("b", "8"), version="9"),
        streams(("ADDED", thing("c", "10")), then="hang"),
    )
    assert names(await events(script, tmp_path, 3)) == ["=a", "=b", "+c"]


async def test_a_watch_refused_with_410_lists_again(tmp_path: Path) -> None:
    script = Script(
        listing(version="5"),
        says({"reason": "Expired", "code": 410}, 410),
        listing(thing("b", "8"), version="9"),
        streams(then="hang"),
    )
    assert names(await events(script, tmp_path, 2)) == ["=", "=b"]


async def test_a_failing_server_is_retried(tmp_path: Path) -> None:
    script = Script(
        says({}, 500),
        says({"reason": "TooManyRequests"}, 429),
        listing(version="5"),
        says({}, 503),
        streams(b"not json\n"),
        streams(("ERROR", {"code": 500, "message": "internal"})),
        streams(("ADDED", thing("a", "6")), then="hang"),
    )
    assert names(await events(script, tmp_path, 2)) == ["=", "+a"]


async def test_a_resource_version_from_the_future_lists_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After its etcd was restored from a backup, an API server sends nothing until it reaches the
    # version.
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.1)
    silent = streams(then="hang")
    script = Script(
        listing(thing("a", "105830"), version="105830"),
        *[silent] * module.MOST_FRUITLESS,
        listing(thing("b", "9"), version="10"),
        streams(("ADDED", thing("c", "11")), then="hang"),
    )
    assert names(await events(script, tmp_path, 3)) == ["=a", "=b", "+c"]
    assert script.requests[-1][2]["resourceVersion"] == "10"


async def test_a_stream_that_ends_without_an_event_continues_from_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A server whose etcd reports no progress sends no bookmark while its kind does not change.
    monkeypatch.setattr(module, "SHORT_SECONDS", 0.0)
    script = Script(
        listing(thing("a", "4"), version="5"),
        streams(),
        listing(thing("b", "2"), version="8", **{"continue": "more"}),
        streams(),
        listing(thing("b", "2"), version="9", **{"continue": "more"}),
        streams(("ADDED", thing("c", "11")), then="hang"),
    )
    assert names(await events(script, tmp_path, 2)) == ["=a", "+c"]
    assert [query.get("resourceVersion") for _, _, query in script.requests] == [
        None, "5", None, "5", None, "5"
    ]  # fmt: skip
    assert "labelSelector" not in script.requests[2][2]
    assert caplog.records == []


async def test_a_quiet_server_that_is_behind_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.01)
    restored = listing(thing("b", "9"), version="10")
    script = Script(
        listing(thing("a", "105830"), version="105830"),
        streams(),
        *[restored] * (1 + module.MOST_OLDER + 1),
        streams(("ADDED", thing("c", "11")), then="hang"),
    )
    assert names(await events(script, tmp_path, 3)) == ["=a", "=b", "+c"]


async def test_an_event_with_an_older_resource_version_lists_again(tmp_path: Path) -> None:
    # A stale event would restore a deleted object, and no later event would delete it.
    script = Script(
        listing(thing("a", "4"), version="5"),
        streams(("DELETED", thing("a", "9")), ("ADDED", thing("a", "4")), then="hang"),
        listing(version="9"),
        streams(("ADDED", thing("b", "10")), then="hang"),
    )
    assert names(await events(script, tmp_path, 4)) == ["=a", "-a", "=", "+b"]


async def test_a_list_from_a_lagging_server_is_not_used(tmp_path: Path) -> None:
    stale = listing(version="7")
    script = Script(
        listing(version="5"),
        streams(("ADDED", thing("a", "9")), gone()),
        *[stale] * 3,
        listing(thing("a", "9"), version="9"),
        streams(("ADDED", thing("b", "10")), then="hang"),
    )
    assert names(await events(script, tmp_path, 4)) == ["=", "+a", "=a", "+b"]


async def test_no_page_of_a_stale_list_is_used(tmp_path: Path) -> None:
    many = [thing(f"old{number}", "3") for number in range(120)]
    script = Script(
        listing(version="5"),
        streams(("BOOKMARK", thing("", "9")), gone()),
        listing(*many, version="7", **{"continue": "token"}),
        listing(thing("a", "9"), version="9"),
    )
    assert names(await events(script, tmp_path, 2)) == ["=", "=a"]


async def test_a_persistently_older_list_means_a_restored_etcd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.01)
    script = Script(
        listing(thing("a", "8"), version="9"),
        streams(gone()),
        *[listing(thing("b", "3"), version="4")] * (module.MOST_OLDER + 1),
        streams(("ADDED", thing("c", "5")), then="hang"),
    )
    assert names(await events(script, tmp_path, 3)) == ["=a", "=b", "+c"]


async def test_non_numeric_resource_versions_are_not_compared(tmp_path: Path) -> None:
    script = Script(
        listing(version="b-9"), streams(("ADDED", thing("a", "a-1")), ("ADDED", thing("b", "3")))
    )
    assert names(await events(script, tmp_path, 3)) == ["=", "+a", "+b"]


async def test_an_error_event_lists_again(tmp_path: Path) -> None:
    # client-go lists after any ERROR. Here a short fault of the server causes no list.
    status = {"kind": "Status", "code": 500, "message": "unable to decode an object in the watch"}
    script = Script(
        listing(thing("a", "1"), version="5"),
        *[streams(("ERROR", status))] * module.MOST_FRUITLESS,
        listing(thing("b", "8"), version="9"),
        streams(then="hang"),
    )
    assert names(await events(script, tmp_path, 2)) == ["=a", "=b"]


async def test_a_quiet_repeatedly_cut_stream_does_not_list_again(
    tmp_path: Path,
) -> None:
    script = Script(
        listing(thing("a", "1"), version="5"),
        *[streams(then="cut")] * 3 * module.MOST_FRUITLESS,
        streams(("ADDED", thing("b", "6")), then="hang"),
    )
    assert names(await events(script, tmp_path, 2)) == ["=a", "+b"]


async def test_an_event_in_many_chunks_is_one_event(tmp_path: Path) -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"6"}}}\n'
    pieces = [line[index : index + 1] for index in range(len(line))]
    script = Script(listing(version="5"), streams(*pieces, then="hang"))
    assert names(await events(script, tmp_path, 2)) == ["=", "+a"]


def test_the_backoff_grows_to_a_limit_and_resets() -> None:
    backoff = Backoff(uniform=lambda _low, high: high)
    trouble = Unavailable("down")
    pauses = [backoff.after(trouble) for _ in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == module.LONGEST_PAUSE_SECONDS
    backoff.reset()
    assert backoff.after(trouble) == pauses[0]


def test_a_longer_retry_after_overrides_the_backoff() -> None:
    backoff = Backoff(uniform=lambda _low, high: high)
    assert backoff.after(Throttled("later", retry_after_seconds=17)) == 17


def test_the_cut_of_a_long_stream_does_not_grow_the_backoff() -> None:
    backoff = Backoff(uniform=lambda _low, high: high)
    trouble = Unavailable("cut")
    first = backoff.after(trouble)
    # As by an idle timeout, again and again: no events arrived, and there was no fault.
    assert [backoff.after(trouble, lived=60.0) for _ in range(9)] == [first] * 9
    # A connection that ended at once, and one that never began.
    assert backoff.after(trouble, lived=0.1) == 2 * first
    assert backoff.after(trouble, lived=-inf) == 4 * first
