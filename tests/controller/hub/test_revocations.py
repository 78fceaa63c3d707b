"""Tests a shell after a revocation: it is restarted, or the remaining users decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from controller.hub import held, shell
from controller.hub.claims import Holder, Revocations, holder_of
from controller.hub.protocol import REPLACED, REVOKED
from controller.hub.scrollback import Scrollbacks
from controller.hub.shell import Shell
from controller.kube.client import Kube
from controller.kube.exec import PodExec
from controller.store import tables
from controller.store.database import Store
from controller.store.instance import read_heartbeats
from controller.store.sessions.revocations import StoredRevocation, add_revocation
from controller.store.sessions.session_rows import assign_shell
from shared.events import REVOCATION_KEPT_SECONDS
from shared.link import Attach, AttachGrant
from shared.tokens import Mode
from tests.clock import Clock
from tests.controller.hub.attaching import (
    PATIENCE_SECONDS,
    SID,
    Client,
    Hub,
    assign,
    hub_serving,
)
from tests.controller.hub.streams import FakeExecutor, FakeStream
from tests.controller.kube.test_exec_cluster import kube

__all__ = ["kube"]

AT = 1000.0


def grant(hub: Hub, name: str, **changes: Any) -> AttachGrant:
    claims: dict[str, Any] = {"jti": f"open-{name}", "kid": "k1", "issued_at": hub.clock() - 5}
    return AttachGrant(**(claims | changes))


async def enter(hub: Hub, name: str, *, mode: Mode = "control", **changes: Any) -> Client:
    """Attach *name*, as a gateway does for a grant."""
    token = hub.token(sub=name, mode=mode, grant=grant(hub, name, **changes))
    client = await hub.attach(token=token)
    await client.hear("attached")
    return client


async def revoke(hub: Hub, **what: str) -> None:
    """Store a revocation, as the API does."""
    match what:
        case {"jti": jti}:
            member = f"jti:{jti}"
        case {"sub": sub}:
            member = f"sub:{SID}:{sub}"
        case {"kid": kid}:
            member = f"kid:{kid}"
        case _:
            member = f"all:{SID}"
    row = StoredRevocation(member=member, at=hub.clock(), sid=SID, **what)
    async with hub.store.write() as transaction:
        await add_revocation(transaction, row)


async def typed(client: Client, stream: FakeStream, data: bytes) -> None:
    await client.socket.send_bytes(data)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while data not in stream.typed:
            await asyncio.sleep(0.002)


async def ended(stream: FakeStream) -> None:
    """Wait until the hub has closed the stream."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not stream.closed:
            await asyncio.sleep(0.005)


async def answered(client: Client, stream: FakeStream) -> None:
    """Wait until *client* has received everything that the hub sent before this call."""
    client.output.clear()
    stream.write(b"mark")
    await client.see(b"mark")


@pytest.mark.parametrize("how", ["jti", "sub", "kid", "all"])
async def test_a_shell_without_other_users_is_replaced_after_a_revocation(
    hub: Hub, executor: FakeExecutor, how: str
) -> None:
    bob = await enter(hub, "bob")
    looking_on = await enter(hub, "eve", mode="view", kid="k2", issued_at=hub.clock() + 5)
    await typed(bob, executor.streams[0], b"sudo() { read x; }\n")
    await revoke(hub, **{"jti": {"jti": "open-bob"}, "sub": {"sub": "bob"}, "kid": {"kid": "k1"},
                         "all": {}}[how])  # fmt: skip
    assert await bob.until_closed() == REVOKED
    assert await looking_on.until_closed() == REPLACED, "who looks on decides nothing"
    await ended(executor.streams[0])
    ada = await enter(hub, "ada", kid="k2", issued_at=hub.clock() + 5)
    assert ada.texts[0]["resumed"] is False
    await ada.see(b"$ ")
    assert ada.said("revoked_input") == []
    assert len(executor.streams) == 2


async def test_other_users_are_notified_and_one_of_them_can_replace_the_shell(
    hub: Hub, executor: FakeExecutor
) -> None:
    ada, bob = await enter(hub, "ada"), await enter(hub, "bob")
    eve = await enter(hub, "eve", mode="view")
    (stream,) = executor.streams
    await typed(bob, stream, b"alias ls=rm\n")
    await revoke(hub, jti="open-bob")
    assert await bob.until_closed() == REVOKED
    for client in (ada, eve):
        assert await client.hear("revoked_input") == {"type": "revoked_input"}
    # The shell stays without a decision, and viewers cannot decide.
    await eve.socket.send_str('{"type":"renew"}')
    await typed(ada, stream, b"make\n")
    late = await enter(hub, "late")
    await late.hear("revoked_input")
    await answered(ada, stream)
    assert len(ada.said("revoked_input")) == 1
    assert not stream.closed
    await ada.socket.send_str('{"type":"renew"}')
    for one in (ada, eve, late):
        assert await one.until_closed() == REPLACED
    await ended(stream)
    again = await enter(hub, "ada")
    await answered(again, executor.streams[1])
    assert again.said("revoked_input") == []


async def test_a_shell_is_replaced_once_all_notified_users_are_revoked(
    hub: Hub, executor: FakeExecutor
) -> None:
    ada, bob = await enter(hub, "ada"), await enter(hub, "bob")
    for one, data in ((ada, b"a"), (bob, b"b")):  # Each input is seen to arrive.
        await typed(one, executor.streams[0], data)
    await revoke(hub, jti="open-bob")
    await ada.hear("revoked_input")
    await revoke(hub, jti="open-ada")
    assert await ada.until_closed() == REVOKED
    await ended(executor.streams[0])


async def test_a_revoked_user_who_typed_nothing_leaves_the_shell_trusted(
    hub: Hub, executor: FakeExecutor
) -> None:
    ada, bob = await enter(hub, "ada"), await enter(hub, "bob")
    eve = await enter(hub, "eve", mode="view")
    await eve.socket.send_bytes(b"typed in vain\n")
    for name, one in (("bob", bob), ("eve", eve)):
        await revoke(hub, jti=f"open-{name}")
        assert await one.until_closed() == REVOKED
    await answered(ada, executor.streams[0])
    assert ada.said("revoked_input") == []
    # The message does not end a shell that is not suspect.
    await ada.socket.send_str('{"type":"renew"}')
    await typed(ada, executor.streams[0], b"on\n")
    assert not executor.streams[0].closed


async def test_a_later_grant_of_the_same_user_stays_valid(hub: Hub, executor: FakeExecutor) -> None:
    before = await enter(hub, "bob")
    await typed(before, executor.streams[0], b"x")
    after = await enter(hub, "bob", jti="open-again", issued_at=hub.clock() + 5)
    await revoke(hub, sub="bob")
    assert await before.until_closed() == REVOKED
    await after.hear("revoked_input")
    assert not executor.streams[0].closed


async def test_a_revoked_user_cannot_reattach_through_a_lagging_gateway(
    hub: Hub, executor: FakeExecutor
) -> None:
    await revoke(hub, jti="open-bob")
    token = hub.token(sub="bob", grant=grant(hub, "bob"))
    response = await hub.refused({"Authorization": f"Bearer {token}"})
    assert (response.status, (await response.json())["code"]) == (401, "grant_revoked")
    await enter(hub, "ada")


async def test_the_first_client_after_a_revocation_gets_another_shell(
    store: Store,
    clock: Clock,
    executor: FakeExecutor,
    session: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hub replaces the shell even if it has not polled since: ada was not there to decide."""
    monkeypatch.setattr(held, "LOOK_SECONDS", 3600.0)
    async with hub_serving(store, clock, executor) as hub:
        await assign(hub)
        bob = await enter(hub, "bob")
        await typed(bob, executor.streams[0], b"trap\n")
        await bob.socket.close()
        await revoke(hub, jti="open-bob")
        ada = await enter(hub, "ada")
        assert ada.texts[0]["resumed"] is False
        await ada.see(b"$ ")
        await ended(executor.streams[0])


async def test_users_of_an_older_gateway_without_grant_are_revocable(
    hub: Hub, executor: FakeExecutor
) -> None:
    bob = await hub.attach(token=hub.token(sub="bob"))
    await typed(bob, executor.streams[0], b"x")
    hub.clock.now += 60
    await revoke(hub, sub="bob")
    assert await bob.until_closed() == REVOKED
    await ended(executor.streams[0])


# One shell


async def test_no_input_of_a_disconnected_client_is_forwarded() -> None:
    stream = FakeStream()
    made = Shell(stream, b"", Scrollbacks())
    holder = Holder("bob", "t1", "k1", AT)
    reader = made.enter(holder, may_type=True, resume=None)
    await made.type(b"first", reader)
    assert made.withdraw(lambda one: one == holder) is True
    await made.type(b"second", reader)
    assert stream.typed == b"first"
    assert reader.ending == shell.ACCESS_REVOKED


async def test_too_many_typists_make_a_shell_untrusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell, "MOST_TYPISTS", 2)
    made = Shell(FakeStream(), b"", Scrollbacks())
    for number in range(3):
        assert made.suspect is False
        reader = made.enter(Holder("bob", f"t{number}", "k1", AT), may_type=True, resume=None)
        await made.type(b"x", reader)
    assert made.suspect is True


# Revocations


def test_revocations_apply_as_at_gateways() -> None:
    revocations = Revocations()
    bob, later = Holder("bob", "t1", "k1", AT), Holder("bob", "t2", "k1", AT + 1)
    by_user = StoredRevocation(member=f"sub:{SID}:bob", at=AT, sid=SID, sub="bob")
    assert revocations.take([by_user]) is True
    assert revocations.take([by_user]) is False, "nothing new"
    assert revocations.cover(SID, bob)
    assert not revocations.cover(SID, later)
    assert not revocations.cover("b" * 26, bob)
    assert not revocations.cover(SID, Holder("eve", "t1", "k1", AT))
    later_one = StoredRevocation(member=by_user.member, at=AT + 1, sid=SID, sub="bob")
    assert revocations.take([later_one]) is True
    assert revocations.cover(SID, later)
    revocations.forget(AT + REVOCATION_KEPT_SECONDS)
    assert revocations.cover(SID, bob)
    revocations.forget(AT + REVOCATION_KEPT_SECONDS + 2)
    assert not revocations.cover(SID, bob)


def test_a_missing_claim_matches_no_revocation() -> None:
    revocations = Revocations()
    revocations.take([StoredRevocation(member="jti:None", at=AT, jti="None")])
    attach = Attach(sid=SID, sub="bob", mode="control", jti="n", exp=AT + 10)
    assert not revocations.cover(SID, holder_of(attach))


# In a pod


@pytest.fixture
async def in_pod(store: Store, clock: Clock, session: None, kube: Kube) -> AsyncIterator[Hub]:
    async with hub_serving(store, clock, PodExec(kube)) as hub:
        async with store.write() as transaction:
            await transaction.execute(sa.update(tables.jobs).values(namespace="default"))
            (heartbeat,) = await read_heartbeats(transaction)
            await assign_shell(transaction, SID, hub_id=heartbeat.hub.id, pod="p1", pod_uid="u1")
        yield hub


async def test_a_new_shell_loses_functions_but_not_background_processes(
    in_pod: Hub,
) -> None:
    bob = await enter(in_pod, "bob")
    trap = b"id() { echo trap-$((6*7)); }; id; nohup sleep 97531 >/dev/null 2>&1 &\n"
    await bob.socket.send_bytes(trap)
    await bob.see(b"trap-42")
    await revoke(in_pod, sub="bob")
    assert await bob.until_closed() == REVOKED
    ada = await enter(in_pod, "ada")
    assert ada.texts[0]["resumed"] is False
    look = b"id; grep -la 9753[1] /proc/[0-9]*/cmdline; echo done-$((1+1))\n"
    await ada.socket.send_bytes(look)
    await ada.see(b"done-2")
    assert b"trap-42" not in ada.output
    # As docs/security.md says: the process has left the shell, but runs as the job's user.
    assert b"/cmdline" in ada.output.rpartition(b"echo done")[2]
