from __future__ import annotations

import asyncio
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.relay.dial import DialFailed, Dialler
from shared.routes import Target
from tests.gateway.relay.harness import NETWORKS, App


def target(host: str, port: int = 1) -> Target:
    return Target(scheme="http", host=host, port=port, id="x")


async def dialled(host: str, port: int = 1, **changes: Any) -> asyncio.Transport:
    told: dict[str, Any] = {"networks": NETWORKS, "loop": asyncio.get_running_loop()}
    transport, _ = await Dialler(**(told | changes)).dial(target(host, port), asyncio.Protocol)
    return transport


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
async def test_targets_within_bounds_are_reached(host: str) -> None:
    async with App().running("0.0.0.0") as app:
        transport = await dialled(host, app.port)
        transport.close()


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fe80::1%lo"])
async def test_addresses_out_of_bounds_are_not_dialled(host: str) -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled(host)
    assert failed.value.code in ("target_forbidden", "app_unreachable")


async def test_a_name_is_judged_by_the_address_that_is_dialled() -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled("localhost", networks=(ip_network("10.0.0.0/8"),))
    assert failed.value.code == "target_forbidden"


async def test_nobody_there() -> None:
    with pytest.raises(DialFailed) as failed:
        await dialled("127.0.0.1", 1)
    assert failed.value.code == "app_unreachable"
    with pytest.raises(DialFailed) as failed:
        await dialled("no-such-name.invalid", 1)
    assert failed.value.code == "app_unreachable"


async def test_dialling_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    class Slow:
        async def getaddrinfo(self, *_: object, **__: object) -> list[object]:
            await asyncio.sleep(30)
            return []

        def __getattr__(self, name: str) -> object:
            return getattr(loop, name)

    with pytest.raises(DialFailed) as failed:
        await dialled("slow.example", loop=Slow(), dial_seconds=0.05)
    assert failed.value.code == "app_timeout"
