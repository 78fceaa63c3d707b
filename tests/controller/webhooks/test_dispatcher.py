"""Tests webhook delivery from the outbox to real receivers, under changing leaders."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from controller.api.resources.updates import render_update, shown
from controller.site.webhook_receivers import Receiver
from controller.store.database import Store
from controller.store.errors import LeadershipLost
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import find_job, insert_job, update_job
from controller.store.notifications import UpdateNotifications
from controller.store.outbox.update_rows import UpdateRow, WebhookCursor, read_cursor, updates_after
from controller.webhooks import deliveries, dispatcher, sender
from controller.webhooks.dispatcher import WebhookCounts, Webhooks
from tests.controller.running import eventually
from tests.controller.samples import forget_jobs, make_record
from tests.controller.webhooks.receiving import (
    SECRET,
    Request,
    Server,
    accept,
    make_receiver,
    response,
)
from tests.waiting import until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(deliveries, "LONGEST_RECEIVER_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(deliveries, "LONGEST_PAUSE_SECONDS", 0.2)
    # Long deadlines: only this machine is slow here.
    monkeypatch.setattr(sender, "CONNECT_SECONDS", 60.0)
    monkeypatch.setattr(sender, "ATTEMPT_SECONDS", 60.0)


class Leading:
    """Sends messages as the leader of the newest term."""

    def __init__(self, store: Store, receivers: Sequence[Receiver]) -> None:
        self.registry = CollectorRegistry()
        self.store = store
        counts = WebhookCounts(self.registry)
        self.webhooks = Webhooks(
            receivers,
            store=store,
            notifications=UpdateNotifications(store),
            render=self.render,
            counts=counts,
        )
        counts.watch([one.name for one in receivers], self.webhooks.oldest_seconds)
        self.unshowable: set[str] = set()
        self.failures: list[Exception] = []

    def render(self, row: UpdateRow) -> bytes:
        if row.job_id in self.unshowable:
            raise ValueError("it cannot be shown")
        return render_update(row)

    def value(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"fumarole_controller_webhook_{name}", labels)
        return found or 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        await self.webhooks.begin()
        async with self.store.write() as transaction:
            term = await raise_term(transaction)
        task = asyncio.create_task(
            self.webhooks.run(self.store.fenced(term), failed=self.failures.append)
        )
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert self.failures == []


async def happen(store: Store, *states: str, job: str = "j1", message: str = "") -> None:
    for state in states:
        async with store.write() as transaction:
            record = await find_job(transaction, job)
            if record is None:
                await insert_job(transaction, make_record(id=job), labels={})
            else:
                await update_job(transaction, record, now=5.0, state=state, message=message)


async def cursor_of(store: Store, name: str = "one") -> WebhookCursor:
    async with store.read() as transaction:
        return await read_cursor(transaction, name)


async def until_saved(store: Store, position: int, name: str = "one") -> None:
    async def look() -> bool:
        return await cursor_of(store, name) == WebhookCursor(position, 0, {})

    await eventually(look, seconds=60, what=f"it is not at {position}")


async def test_a_receiver_gets_the_updates_of_the_api_in_order(store: Store) -> None:
    server = Server()
    async with server.listening():
        leading = Leading(store, [make_receiver(server.url)])
        async with leading.running():
            await happen(store, "IN_QUEUE", "RUNNING", message="so")
            await happen(store, "IN_QUEUE", "FAILURE", job="j2")
            await happen(store, "SUCCESS")
            await until(lambda: len(server.requests) == 5)
            await until_saved(store, 5)
    async with store.read() as transaction:
        items = shown(await updates_after(transaction, 0, limit=9))
    got = sorted((one.json for one in server.requests), key=lambda one: int(one["id"]))
    assert got == [one.model_dump(mode="json") for one in items]
    assert [one for one in server.numbers if one in (1, 2, 5)] == [1, 2, 5]
    assert len({one.headers["webhook-id"] for one in server.requests}) == 5
    assert leading.value("attempts_total", receiver="one", outcome="accepted") == 5
    assert leading.value("oldest_seconds", receiver="one") == 0.0
    assert leading.value("lag_seconds", receiver="one") > 0.0


async def test_a_new_receiver_starts_with_the_next_update(store: Store) -> None:
    await happen(store, "IN_QUEUE", "RUNNING")
    server = Server()
    async with server.listening():
        leading = Leading(store, [make_receiver(server.url)])
        async with leading.running():
            await happen(store, "SUCCESS")
            await until_saved(store, 3)
        assert server.numbers == [3]


async def test_a_restart_loses_no_update(store: Store) -> None:
    async def answer(_request: Request, _writer: asyncio.StreamWriter) -> bytes | None:
        # Some messages are accepted, but the controller gets no response.
        return response(200) if len(server.requests) % 4 else None

    server = Server(answer)
    async with server.listening():
        for number in range(18):
            if number % 6 == 0:
                leading = Leading(store, [make_receiver(server.url)])
                await leading.webhooks.begin()
            await happen(store, "IN_QUEUE", "RUNNING", "SUSPENDED", job=f"j{number % 7}")
            if number % 6 == 5:
                async with leading.running():
                    before = len(server.requests)
                    await until(lambda before=before: len(server.requests) > before + 3)
        async with Leading(store, [make_receiver(server.url)]).running():
            await until_saved(store, 54)
    by_job: dict[str, list[int]] = {}
    for one in server.requests:
        by_job.setdefault(one.json["job"], []).append(one.json["id"])
    assert sorted({number for numbers in by_job.values() for number in numbers}) == [*range(1, 55)]
    for numbers in by_job.values():
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    names = {(one.json["id"], one.headers["webhook-id"]) for one in server.requests}
    assert len(names) == 54  # each attempt has the same name


async def test_a_dead_or_slow_receiver_delays_no_other_and_gets_all_updates(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MOST_JOBS", 5)
    released = asyncio.Event()

    async def wait(_request: Request, _writer: asyncio.StreamWriter) -> bytes:
        await released.wait()
        return response(200)

    good, slow, dead = Server(), Server(wait), Server()
    async with AsyncExitStack() as stack:
        for one in (good, slow):
            await stack.enter_async_context(one.listening())
        servers = {"good": good, "slow": slow, "dead": dead}
        receivers = [make_receiver(one.url, name=name) for name, one in servers.items()]
        leading = Leading(store, receivers)
        await stack.enter_async_context(leading.running())
        for number in range(20):
            await happen(store, "IN_QUEUE", job=f"j{number}")
        await until_saved(store, 20, "good")
        # The connections that wait for the others are bounded, in the process and on the network.
        assert slow.connections <= deliveries.AT_ONCE
        for name in ("slow", "dead"):
            assert len((await cursor_of(store, name)).pending) <= 5
            assert leading.value("oldest_seconds", receiver=name) > 0
        await until(lambda: leading.value("attempts_total", receiver="dead", outcome="unreachable"))
        released.set()
        await stack.enter_async_context(dead.listening())
        for name in ("slow", "dead"):
            await until_saved(store, 20, name)
            assert servers[name].numbers[:1] == [1]
            assert sorted(servers[name].numbers) == [*range(1, 21)]


async def test_a_refused_job_is_retried_without_delaying_others(store: Store) -> None:
    refuse = {"j1"}

    async def answer(request: Request, _writer: asyncio.StreamWriter) -> bytes:
        return response(500 if request.json["job"] in refuse else 200)

    server = Server(answer)
    async with server.listening():
        receiver = make_receiver(server.url)
        first = Leading(store, [receiver])
        async with first.running():
            await happen(store, "IN_QUEUE", "RUNNING")
            await happen(store, "IN_QUEUE", "RUNNING", "SUCCESS", job="j2")
            await until(lambda: 5 in server.numbers)
            await until(lambda: server.numbers.count(1) > 2)
            expected = WebhookCursor(5, 0, {"j1": 1})
            assert 2 not in server.numbers

            async def saved() -> bool:
                return await cursor_of(store) == expected

            await eventually(saved)
            assert first.value("attempts_total", receiver="one", outcome="refused") > 2
        refuse.clear()
        async with Leading(store, [receiver]).running():
            await until_saved(store, 5)
        assert server.numbers[-2:] == [1, 2]
        # An accepted and saved message is not sent again.
        assert [server.numbers.count(number) for number in (3, 4, 5)] == [1, 1, 1]


async def test_a_gone_receiver_is_sent_nothing_until_the_next_leader(store: Store) -> None:
    async def answer(_request: Request, _writer: asyncio.StreamWriter) -> bytes:
        return response(410)

    server = Server(answer)
    async with server.listening():
        receiver = make_receiver(server.url)
        first = Leading(store, [receiver])
        async with first.running():
            await happen(store, "IN_QUEUE", "RUNNING", "SUCCESS")
            await until(lambda: first.value("attempts_total", receiver="one", outcome="gone") == 1)
            await happen(store, "IN_QUEUE", job="j2")
            await asyncio.sleep(0.3)
            assert server.numbers == [1]
        server.answer = accept
        async with Leading(store, [receiver]).running():
            await until_saved(store, 4)
        assert sorted(server.numbers) == [1, 1, 2, 3, 4]


async def test_a_long_absent_receiver_is_told_of_deleted_updates(store: Store) -> None:
    server = Server()
    async with server.listening():
        leading = Leading(store, [make_receiver(server.url)])
        await leading.webhooks.begin()
        await happen(store, "IN_QUEUE", "SUCCESS")
        async with store.write() as transaction:
            record = await find_job(transaction, "j1")
            assert record is not None
            await update_job(transaction, record, now=6.0, finished_at=6.0)
            assert await forget_jobs(transaction, finished_before=7.0, limit=9) == 1
        await happen(store, "IN_QUEUE", "RUNNING", job="j2")
        async with leading.running():
            await until(lambda: len(server.requests) == 3)
            await happen(store, "SUCCESS", job="j2")
            await until(lambda: len(server.requests) == 4)
        assert server.requests[0].json == {"event": "forgotten", "through": 2}
        assert server.numbers == [3, 4, 5]


async def test_a_lost_leader_sends_no_update(store: Store) -> None:
    server = Server()
    async with server.listening():
        leading = Leading(store, [make_receiver(server.url)])
        async with leading.running() as task:
            await happen(store, "IN_QUEUE")
            await until_saved(store, 1)
            async with store.write() as transaction:
                await raise_term(transaction)
            await happen(store, "RUNNING")
            await asyncio.wait([task], timeout=30)
            assert isinstance(task.exception(), ExceptionGroup)
            assert task.exception().split(LeadershipLost)[1] is None  # type: ignore[union-attr]
        assert server.numbers == [1]


async def test_only_selected_states_are_sent(store: Store) -> None:
    server = Server()
    async with server.listening():
        receiver = make_receiver(server.url, states=frozenset({"SUCCESS", "FAILURE"}))
        async with Leading(store, [receiver]).running():
            await happen(store, "IN_QUEUE", "RUNNING", "SUCCESS")
            await happen(store, "IN_QUEUE", "RUNNING", job="j2")
            await until_saved(store, 5)
        assert server.numbers == [3]


async def test_an_unrenderable_update_blocks_only_its_job(store: Store) -> None:
    server = Server()
    async with server.listening():
        leading = Leading(store, [make_receiver(server.url)])
        leading.unshowable.add("j1")
        async with leading.running():
            await happen(store, "IN_QUEUE")
            await happen(store, "IN_QUEUE", job="j2")
            await until(lambda: server.numbers == [2])
            leading.unshowable.clear()
            await until_saved(store, 2)
        assert server.numbers == [2, 1]


async def test_the_end_of_a_fault_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    refused = {"IN_QUEUE": 2}

    async def answer(request: Request, _writer: asyncio.StreamWriter) -> bytes:
        state = json.loads(request.body)["state"]
        refused[state] = left = refused.get(state, 0) - 1
        return response(500 if left >= 0 else 204)

    server = Server(answer)
    caplog.set_level(logging.INFO, logger=dispatcher.__name__)
    async with server.listening():
        leading = Leading(store, [make_receiver(server.url)])
        async with leading.running():
            await happen(store, "IN_QUEUE", "RUNNING", "SUCCESS")
            await until_saved(store, 3)
    assert caplog.messages == ["a webhook was not accepted", "webhooks are accepted again"]


async def test_no_log_holds_a_secret_or_a_url(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_request: Request, _writer: asyncio.StreamWriter) -> bytes:
        return response(500)

    server, silent = Server(answer), Server()
    caplog.set_level(logging.DEBUG)
    async with server.listening():
        receivers = [
            make_receiver(server.url + "/canary-path"),
            make_receiver(silent.url + "/canary-path", name="dead"),
            make_receiver(server.url + "/canary-path", name="forbidden", networks=()),
        ]
        leading = Leading(store, receivers)
        async with leading.running():
            await happen(store, "IN_QUEUE")
            for one, outcome in zip(
                receivers, ("refused", "unreachable", "forbidden"), strict=True
            ):
                await until(
                    lambda one=one, outcome=outcome: leading.value(
                        "attempts_total", receiver=one.name, outcome=outcome
                    )
                )
    silent.close()
    logged = [one for one in caplog.records if one.name == dispatcher.__name__]
    assert {vars(one)["receiver"] for one in logged} == {"one", "dead", "forbidden"}
    text = json.dumps([vars(one) for one in caplog.records], default=str) + repr(receivers)
    for secret in (base64.b64encode(SECRET).decode(), repr(SECRET), SECRET.hex()):
        assert secret not in text
    assert "canary-path" not in json.dumps([vars(one) for one in logged], default=str)
