"""Tests several Sentinels, some of them unreachable, and the reasons if none knows the master."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.bus import BusReader, Keys, connect
from shared.errors import BusUnavailable
from tests.redis_nodes import Node, free_ports, running


async def head(*sentinels: int, name: str = "main") -> None:
    """Ask these Sentinels for the master *name*, and read the head."""
    places = ",".join(f"127.0.0.1:{port}" for port in sentinels)
    client = connect(f"redis+sentinel://{places}/{name}")
    try:
        await BusReader(client, Keys("test")).head()
    finally:
        await client.aclose()


async def test_a_sentinel_that_knows_the_master_is_found_among_others(tmp_path: Path) -> None:
    port, one, nobody = free_ports(3)
    master = Node(tmp_path / "a", port)
    watch = f"sentinel monitor main 127.0.0.1 {port} 1\n"
    sentinel = Node(tmp_path / "s", one, sentinel=watch)
    async with running([master, sentinel]):
        # A Redis that is no Sentinel refuses the command; nothing listens at the other port.
        await head(port, nobody, one)
        with pytest.raises(BusUnavailable) as refused:
            await head(port, nobody, one, name="another")
        assert str(refused.value) == (
            "Redis did not answer: no Sentinel names a master: ResponseError, "
            f"Connect call failed ('127.0.0.1', {nobody}), it knows no such name"
        )


async def test_a_master_marked_down_by_its_sentinel_is_not_used(tmp_path: Path) -> None:
    nobody, one = free_ports(2)
    watch = (
        f"sentinel monitor main 127.0.0.1 {nobody} 1\nsentinel down-after-milliseconds main 100\n"
    )
    sentinel = Node(tmp_path / "s", one, sentinel=watch)
    async with running([sentinel]):
        await sentinel.until("s_down", "SENTINEL", "MASTER", "main")
        with pytest.raises(BusUnavailable, match="a master: the one that it knows is down"):
            await head(one)
