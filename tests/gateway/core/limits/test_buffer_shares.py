"""The buffers of a client, and which of its connections exceed its share."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.buffer_shares import SMALL_BYTES, BufferShares, client_share
from gateway.core.limits.overload import Step

KIB = 1024
MIB = 1024 * KIB


def test_the_share_of_a_client_is_halved_at_each_step_but_holds_a_browsers_connections() -> None:
    steps = tuple(Step)[1:]
    assert [client_share(512 * MIB, step) // MIB for step in steps] == [64, 32, 16, 8]
    assert [client_share(128 * MIB, step) // MIB for step in steps] == [16, 8, 4, 4]


@dataclass
class Connection:
    """A connection of *client* that buffers *size* bytes."""

    client: str
    size: int

    def buffered_bytes(self) -> int:
        """Return its size."""
        return self.size

    def shed(self) -> None:
        """Unused here."""


def excess(limit: int, *connections: Connection) -> dict[str, list[int]]:
    shares: BufferShares[Connection] = BufferShares(limit)
    for one in connections:
        shares.count(one)
    return {client: [one.size for one in many] for client, many in shares.find_excess().items()}


def test_the_largest_buffers_of_a_client_over_its_share_are_found() -> None:
    of_ada = [Connection("ada", size * KIB) for size in (10, 300, 20, 200, 30)]
    of_bob = [Connection("bob", 250 * KIB)]
    assert excess(260 * KIB, *of_ada, *of_bob) == {"ada": [300 * KIB]}
    assert excess(255 * KIB, *of_ada, *of_bob) == {"ada": [300 * KIB, 200 * KIB]}
    assert excess(560 * KIB, *of_ada, *of_bob) == {}


def test_small_buffers_and_unknown_clients_are_not_counted() -> None:
    small = [Connection("ada", SMALL_BYTES - 1) for _ in range(1000)]
    unknown = [Connection("", 300 * KIB) for _ in range(1000)]
    assert excess(KIB, *small, *unknown) == {}


@given(
    st.integers(0, 1 << 20),
    st.lists(st.builds(Connection, st.sampled_from(["ada", "bob"]), st.integers(0, 1 << 20))),
)
def test_what_is_left_of_each_client_is_within_its_share(
    limit: int, connections: list[Connection]
) -> None:
    counted = [one for one in connections if one.size >= SMALL_BYTES]
    found = excess(limit, *connections)
    for client in ("ada", "bob"):
        ended = found.get(client, [])
        total = sum(one.size for one in counted if one.client == client)
        assert total - sum(ended) <= limit
        if ended:
            assert total - sum(ended[:-1]) > limit, "one fewer would not do"
