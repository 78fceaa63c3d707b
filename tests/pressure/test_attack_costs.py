"""Tests the cost of each misbehaviour, for every kind of connection, over plain TCP and TLS.

A cell says what ends the connection on both sides:

- ``2``: two seconds
- ``stall``, ``slow``, ``head``, ``answer``: the deadlines of docs/limits.md, shortened
- ``kept``: the connection continues, because it is slow and not stalled
- ``probed``: nothing waits to be sent, so TCP's keep-alive finds out
- ``-``: there is no such case

All selected cells of a batch are played at once, on one gateway, beside an honest session.
Browsers that leave use a gateway with the product's own deadlines, so that no deadline can hide an
unnoticed end. Stalled connections use a gateway with short deadlines.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from tests.contract.messages import request
from tests.pressure.apps import Mode
from tests.pressure.browser import GatewayClosed
from tests.pressure.cable import Cable
from tests.pressure.conftest import WIRES, PressureRigs
from tests.pressure.gateway_under_test import (
    DEADLINE_SECONDS,
    KEEPALIVE_TIMER,
    SMALL_WINDOW,
    Address,
    PressureRig,
)
from tests.pressure.honest import HonestResults
from tests.pressure.kinds import KINDS, OpenConnection, Scene

TABLE = """
                 | FIN | RST | reads nothing | trickles | app reads nothing | hidden FIN | app lost
request          | 2   | 2   | stall         | head     | answer            | -          | answer
long poll        | 2   | 2   | -             | head     | answer            | -          | answer
upload           | 2   | 2   | stall         | slow     | slow              | slow       | slow
chunked upload   | 2   | 2   | stall         | slow     | slow              | slow       | slow
download         | 2   | 2   | stall         | kept     | -                 | -          | probed
chunked download | 2   | 2   | stall         | kept     | -                 | -          | probed
event stream     | 2   | 2   | stall         | kept     | -                 | -          | probed
public link      | 2   | 2   | stall         | kept     | -                 | -          | probed
WebSocket        | 2   | 2   | stall         | kept     | stall             | stall      | stall
terminal         | 2   | 2   | stall         | kept     | stall             | stall      | stall
desktop          | 2   | 2   | stall         | kept     | stall             | stall      | stall
page             | 2   | 2   | -             | slow     | -                 | -          | -
refused          | 2   | 2   | stall         | head     | -                 | -          | -
"""
# Added to the time that other programs of the machine take (Ground.freed). No deadline of the
# product is near: an unnoticed end of a browser would stay for a minute, a stall for ever.
LATE_SECONDS, LATE_DEADLINE_SECONDS = 2.0, 10.0
WITHIN = {"2": 2.0 + LATE_SECONDS} | dict.fromkeys(
    ("head", "answer", "stall", "slow"), DEADLINE_SECONDS + LATE_DEADLINE_SECONDS
)
PATIENCE_SECONDS = 60.0
TRIES = 4
# The number of stalled connections at once, so that the memory of each becomes visible.
COPIES = 6
LINGER_SECONDS = 2.0
# docs/limits.md: the bytes that wait for a reader, on either side.
HELD_BYTES = 512 << 10
# Python's own need for the work, whoever caused it.
SLACK_BYTES = 16 << 20
SLOW_READER = 64 << 10
OTHERS_SECONDS = 1.0
# More bytes than both kernels' buffers take; and bytes that are answered, or dropped, at once.
STALLED_FLOOD, UNREAD_FLOOD = 64 << 20, 4 << 20


def read_table() -> dict[tuple[str, str], str]:
    """Return the cells by row and column."""
    head, *rows = (
        [cell.strip() for cell in row.split("|")] for row in TABLE.strip("\n").split("\n")
    )
    return {(row[0], name): row[at] for row in rows for at, name in enumerate(head) if at}


Cell = tuple[str, str]
CELLS = {place: cell for place, cell in read_table().items() if cell != "-"}
LOST = "app lost"
BATCHES = {
    "leaving": ("FIN", "RST"),
    "stalling": ("reads nothing", "trickles", "app reads nothing", "hidden FIN"),
    "lost": (LOST,),
}
BATCH_OF = {column: batch for batch, columns in BATCHES.items() for column in columns}


# The actions of a cell


_stalled_for = itertools.cycle((0.0, 1.0))


async def leaves(held: OpenConnection) -> None:
    """Send FIN, and nothing after it: at once, or when a download has filled all buffers."""
    await asyncio.sleep(next(_stalled_for))
    held.browser.fin()


async def resets(held: OpenConnection) -> None:
    """Send RST."""
    held.browser.reset()


async def asks_on(held: OpenConnection) -> None:
    """Read nothing, and send more requests, or more of what the app has answered already."""
    if held.more:
        await held.browser.flood(held.more, most=UNREAD_FLOOD, seconds=WITHIN["stall"])


async def fills(held: OpenConnection) -> None:
    """Send until the gateway takes no more; nothing if there is nothing to send."""
    if held.more:
        await held.browser.flood(held.more, most=STALLED_FLOOD, seconds=WITHIN["stall"])


async def fills_and_leaves(held: OpenConnection) -> None:
    """Send until the gateway takes no more, then FIN: it waits behind the unsent bytes."""
    await held.browser.flood(held.more, most=STALLED_FLOOD, seconds=1.0)
    held.browser.fin()


async def dribbles(held: OpenConnection) -> None:
    """Send the rest byte by byte."""
    with suppress(GatewayClosed, TimeoutError):
        await held.browser.dribble(b"x" * 10_000, 0.05)


ACTS: dict[str, tuple[Mode, Callable[[OpenConnection], Coroutine[None, None, None]], int]] = {
    "FIN": ("silent", leaves, 2),
    "RST": ("silent", resets, 2),
    "reads nothing": ("talks", asks_on, COPIES),
    "trickles": ("silent", dribbles, 2),
    "app reads nothing": ("deaf", fills, COPIES),
    "hidden FIN": ("deaf", fills_and_leaves, 2),
    LOST: ("silent", fills, 2),
}
STALLING = ("download", "chunked download", "public link", "WebSocket", "terminal", "desktop")


# The checks


@dataclass
class Place:
    """A cell of the table, on a ground; a cable is cut once every play is under way."""

    ground: PressureRig
    row: str
    column: str
    ready: asyncio.Barrier | None = None

    @property
    def cell(self) -> str:
        """The content of the cell."""
        return CELLS[self.row, self.column]

    @property
    def mode(self) -> Mode:
        """The app's behaviour: a browser that leaves a download has stalled it before."""
        stalls = self.row in STALLING and self.column in ("FIN", "RST")
        return "talks" if stalls else ACTS[self.column][0]

    async def play(self) -> str:
        """Play the cell, and return what failed; repeat what fails on a busy machine."""
        for _ in range(TRIES):
            late = self.ground.late()
            failure = await self.play_once()
            if not failure or self.ready is not None or not self.is_busy(late):
                break
        return failure

    def is_busy(self, late: float) -> bool:
        """Return whether test or gateway could have missed a deadline since *late*."""
        return self.ground.late() - late >= DEADLINE_SECONDS / 3

    async def play_once(self) -> str:
        """Play the cell once, and return what failed."""
        try:
            match self.cell:
                case "kept":
                    return await self.is_kept()
                case "head":
                    return await self.dribbled_head()
                case _:
                    return await self.held()
        except Exception as error:
            return f"did not come to pass: {error!r}"

    async def held(self) -> str:
        """Bring a connection under way, act, and return what stays of it."""
        where = "far" if self.column == LOST else "near"
        async with KINDS[self.row].begin(Scene(self.ground, self.mode, where)) as held:
            if self.ready is not None:
                await self.ready.wait()
            if self.cell == "probed":
                return await self.probed(held)
            browser, app = held.browser.address, held.app
            acting = asyncio.create_task(ACTS[self.column][1](held))
            stays = await self.stays(browser, app.address if app else None)
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            if self.cell == "answer":
                return stays or await self.responded(held)
            if self.row == "request" and self.column == "FIN" and app and len(app.requests) > 1:
                return "a request behind the FIN reached the app"
            return stays

    async def stays(self, browser: Address, app: Address | None) -> str:
        """Return what the gateway does not release in time."""
        began, within = time.monotonic(), WITHIN[self.cell]
        if app is not None and await self.ground.freed(app, within) is None:
            return f"the app's connection stays, {within} s later: {self.ground.legs_of(app)}"
        if self.cell == "answer":
            return ""  # the browser's connection may serve its next request
        # The gateway allows two seconds to read its response.
        within += LINGER_SECONDS
        left = within - (time.monotonic() - began)
        if await self.ground.freed(browser, left) is None:
            return f"the browser's stays, {within} s later: {self.ground.legs_of(browser)}"
        return ""

    async def responded(self, held: OpenConnection) -> str:
        """Return a failure unless the browser got the 504 for a silent app."""
        status = await held.browser.status()
        return "" if status == 504 else f"the browser got {status}"

    async def is_kept(self) -> str:
        """Return a failure if a slow reader is not served on.

        A reader that a busy machine kept from reading proves nothing, and another one tries.
        """
        for _ in range(TRIES):
            late = self.ground.late()
            failure = await self.is_kept_once()
            if not failure or not self.is_busy(late):
                return failure
        return ""

    async def is_kept_once(self) -> str:
        """Return a failure if a slow reader is not served on."""
        async with KINDS[self.row].begin(Scene(self.ground, "talks")) as held:
            assert held.app is not None
            try:
                await held.browser.read_at(SLOW_READER, 2 * DEADLINE_SECONDS)
            except GatewayClosed as error:
                return f"a slow reader was cut off: {error}"
            return "" if self.ground.legs_of(held.app.address) else "a slow reader's app is gone"

    async def probed(self, held: OpenConnection) -> str:
        """Return a failure if keep-alive does not probe both idle sides."""
        assert held.app is not None
        await asyncio.sleep(1.0)
        for side, one in (("app", held.app.address), ("browser", held.browser.address)):
            timers = {leg.timer for leg in self.ground.legs_of(one)}
            if timers != {KEEPALIVE_TIMER}:
                return f"nothing probes the {side}: timers {timers}"
        return ""

    async def dribbled_head(self) -> str:
        """Send a head byte by byte, and return what the gateway does not release in time."""
        browser = await self.ground.browser(window=SMALL_WINDOW)
        head = request("GET", "/", host="x" * 1000)
        acting = asyncio.create_task(browser.dribble(head, 0.05))
        stays = await self.stays(browser.address, None)
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)
        return stays


# Batches


@dataclass
class PlayResult:
    """The result of plays: the failures by row and column, and the cost to other sessions."""

    failures: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    growth: int = 0
    waited: float = 0.0
    plays: int = 0
    others: HonestResults = field(default_factory=HonestResults)


async def play(ground: PressureRig, cells: list[Cell]) -> PlayResult:
    """Play *cells* at once, as often as their columns say."""
    cable = ground.place if isinstance(ground.place, Cable) else None
    all_cells = [cell for cell in cells for _ in range(ACTS[cell[1]][2])]
    ready = asyncio.Barrier(len(all_cells) + 1) if cable else None
    places = [Place(ground, *cell, ready) for cell in all_cells]
    others = await ground.others()
    await others.seen()
    waited = ground.waited()
    async with ground.watched() as memory:
        tasks = [asyncio.create_task(place.play()) for place in places]
        if cable is not None and ready is not None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ready.wait()
            await cable.cut()
        results = await asyncio.gather(*tasks)
    ground.close()
    played = PlayResult(growth=memory.growth, plays=len(places), others=await others.seen())
    played.waited = ground.waited() - waited
    for place, result in zip(places, results, strict=True):
        if result:
            played.failures.setdefault((place.row, place.column), set()).add(result)
    return played


class Table:
    """The table, played; a batch is played once on each wire, with the selected cells."""

    def __init__(self, grounds: PressureRigs, items: Sequence[pytest.Item]) -> None:
        self._grounds = grounds
        self._selected = {
            (params["wire"], params["row"], params["column"])
            for params in (item.callspec.params for item in items if hasattr(item, "callspec"))
            if "column" in params
        }
        self._played: dict[Cell, PlayResult] = {}

    async def batch(self, wire: str, batch: str) -> PlayResult:
        """Return the result of *batch*."""
        if (wire, batch) not in self._played:
            cells = [cell for cell in CELLS if BATCH_OF[cell[1]] == batch]
            chosen = [cell for cell in cells if (wire, *cell) in self._selected] or cells
            lost, patient = batch == "lost", batch == "leaving"
            ground = await self._grounds.on(wire, cable=lost, patient=patient)
            self._played[wire, batch] = await play(ground, chosen)
        return self._played[wire, batch]


@pytest.fixture(scope="package")
def table(grounds: PressureRigs, request: pytest.FixtureRequest) -> Table:
    """Provide the results of the table so far."""
    return Table(grounds, request.session.items)


def cells_of(*batches: str) -> list[Cell]:
    """Return the cells of *batches*."""
    return [cell for batch in batches for cell in CELLS if BATCH_OF[cell[1]] == batch]


on_wires = pytest.mark.parametrize("wire", WIRES)


@on_wires
@pytest.mark.parametrize(("row", "column"), cells_of("leaving", "stalling"))
async def test_each_connection_ends_at_its_deadline_or_is_kept(
    table: Table, wire: str, row: str, column: str
) -> None:
    played = await table.batch(wire, BATCH_OF[column])
    assert not played.failures.get((row, column))


@pytest.mark.needs("namespaces")
@on_wires
@pytest.mark.parametrize(("row", "column"), cells_of("lost"))
async def test_a_vanished_host_is_detected(table: Table, wire: str, row: str, column: str) -> None:
    played = await table.batch(wire, "lost")
    assert not played.failures.get((row, column))


@on_wires
@pytest.mark.parametrize("batch", ["leaving", "stalling"])
async def test_connections_use_no_more_memory_than_documented(
    table: Table, wire: str, batch: str
) -> None:
    played = await table.batch(wire, batch)
    most = 2 * HELD_BYTES * played.plays + SLACK_BYTES
    assert played.growth <= most, f"{played.growth >> 20} MiB"


@on_wires
@pytest.mark.parametrize("batch", ["leaving", "stalling"])
async def test_other_clients_are_served_during_attacks(table: Table, wire: str, batch: str) -> None:
    played = await table.batch(wire, batch)
    assert played.others.wrong == []
    assert played.others.slowest < OTHERS_SECONDS + played.waited
