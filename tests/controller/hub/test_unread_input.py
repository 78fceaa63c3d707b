"""Tests interrupts behind input that a program does not read, with real terminals and shells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes_asyncio.client import Configuration

from controller.kube.exec import PodExec
from controller.store.database import Store
from tests.clock import Clock
from tests.controller.hub.attaching import PATIENCE_SECONDS, SID, Client, Hub, assign, hub_serving
from tests.controller.kube.exec_server import serving

PASTE = b"a line of a large paste\n" * 40_000
SLEEPING = b"echo sle''eping; sleep 600\n"


@pytest.fixture
async def hub(store: Store, clock: Clock, session: None) -> AsyncIterator[Hub]:
    async def renew() -> None:
        raise AssertionError("the credentials are good")

    async with serving() as server:
        configuration = Configuration(host=server.url)
        configuration.api_key = {"BearerToken": "Bearer good"}
        async with (
            PodExec.connect(configuration, renew=renew) as executor,
            hub_serving(store, clock, executor) as hub,
        ):
            await assign(hub)
            yield hub


async def enter(hub: Hub) -> Client:
    client = await hub.attach(after=0, client="page1")
    await client.socket.send_bytes(b"echo re''ady\n")
    await client.see(b"ready\r\n")
    return client


@pytest.mark.parametrize("size", [6_000, len(PASTE)])
async def test_an_interrupt_reaches_a_program_that_reads_no_input(hub: Hub, size: int) -> None:
    client = await enter(hub)
    await client.socket.send_bytes(SLEEPING)
    await client.see(b"sleeping\r\n")
    sending = asyncio.create_task(client.socket.send_bytes(PASTE[:size]))
    await client.see(b"large paste\r\n")
    for message in (b"\x03", b"echo interr''upted\n"):
        await sending
        sending = asyncio.create_task(client.socket.send_bytes(message))
    await client.see(b"interrupted\r\n")
    assert b"command not found" not in client.output, "the paste is not run"
    await sending


async def sent_raw(hub: Hub, flag: Path, *messages: bytes) -> bytes:
    """Send *messages* to a program that reads them late and as they are; return its output."""
    client = await enter(hub)
    late = f"until [ -e {flag} ]; do sleep 0.05; done; head -c 9 | od -An -c"
    command = f"stty raw -echo; echo r''aw; {late}; stty sane; echo do''ne\n"
    await client.socket.send_bytes(command.encode())
    await client.see(b"raw\n")
    shell = (await hub.role.shells.find(SID)).shells[""].shell
    assert shell is not None
    unread = shell._unread_input
    unread._may_be_full = True
    for message in messages:
        await client.socket.send_bytes(message)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not unread._is_sent or unread._key:
            await asyncio.sleep(0.01)
    flag.touch()
    await client.see(b"done\r\n")
    return bytes(client.output)


async def test_an_interrupt_that_is_no_signal_reaches_the_program_without_the_paste(
    hub: Hub, tmp_path: Path
) -> None:
    shown = await sent_raw(hub, tmp_path / "read", PASTE[:100_000], b"\x03", b"12345678")
    assert b" 003   1   2   3   4   5   6   7   8" in shown


async def test_a_program_that_was_only_slow_gets_all_of_its_input(hub: Hub, tmp_path: Path) -> None:
    shown = await sent_raw(hub, tmp_path / "read", b"12345\r", b"\x03", b"ab")
    assert b"   1   2   3   4   5  \\r 003   a   b" in shown
