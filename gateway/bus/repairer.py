"""Repairs a table that is behind its head: by the log, or by a snapshot beyond the log's reach.

One at a time. Followers that lose the bus together do not read whole tables together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.bus.head_policy import is_proven
from gateway.bus.holder import RouteTableHolder
from shared.bus import LOG_PART, BusReader, Snapshot
from shared.errors import BusUnavailable, MalformedEvent, SnapshotRefused, Unsigned
from shared.events import Head, decode_event
from shared.routes.route import RouteReader
from shared.routes.signed_table import BUCKETS, SignedHead, TableDigest
from shared.routes.table import Outcome, RouteTable

log = logging.getLogger(__name__)


LOG_SECONDS: Final = 2.0
"""For one part of the log."""
SETTLE_SECONDS: Final = 0.02
"""How long a head that is ahead may be explained by events that are still under way."""
ROUTES_PER_SECOND: Final = 50_000
"""Followers that lose the bus together spread their snapshots by this."""
SNAPSHOT_SECONDS: Final = 60.0
LOG_REACH: Final = 4096
"""A table that is further behind is read whole: that is quicker than so many events."""

_SIGNED_PART: Final = 64
"""Some ten milliseconds of signatures."""
_LOOKED_UP_AT_ONCE: Final = 5000
_FREED_AT_ONCE: Final = 1000
_LONGEST_PAUSE_SECONDS: Final = 16.0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Repairer:
    """Repairs the table whenever a repair is requested."""

    holder: RouteTableHolder
    reader: BusReader
    routes: RouteReader
    monotonic: Callable[[], float]
    random: Callable[[], float]
    _pause: float = 0.0
    _refused: str = ""
    """The epoch that the pause is of."""

    async def run(self) -> None:
        """Repair until cancelled."""
        holder, catch_up = self.holder, self.holder.catch_up
        while True:
            await catch_up.repair_requested()
            # Events under way get their time.
            await catch_up.reached_within(SETTLE_SECONDS)
            if not holder.is_behind or await self._read_log():
                continue
            await catch_up.reached_within(self._spread())
            if holder.is_behind:
                await self._exchange()

    def _spread(self) -> float:
        """Return how long to wait, so that many followers do not take snapshots at once."""
        table = self.holder.table
        # Whoever waits is one request at one gateway, not all gateways at once.
        if self.holder.catch_up.is_awaited or table is None:
            return 0.0
        return self.random() * len(table) / ROUTES_PER_SECOND

    async def _read_log(self) -> bool:
        """Apply what the log holds after our seq; say whether the table has reached its head."""
        holder, catch_up = self.holder, self.holder.catch_up
        table = holder.table
        if catch_up.is_whole_wanted:
            return False
        while table is not None and (head := catch_up.wanted) is not None:
            if head.epoch != table.epoch or head.seq - table.seq > LOG_REACH:
                return False
            try:
                async with asyncio.timeout(LOG_SECONDS):
                    part = await self.reader.log_after(table.seq, most=self._part())
            except (BusUnavailable, TimeoutError):
                return False
            if not self._apply_log(part.events, table):
                return False
            await asyncio.sleep(0)
        return catch_up.wanted is None

    def _part(self) -> int:
        """Return how many events are read at once; each that is signed has to be checked."""
        return _SIGNED_PART if is_proven(self.holder.table) else LOG_PART

    def _apply_log(self, events: Iterable[bytes], table: RouteTable) -> bool:
        """Apply *events*, but those that have arrived meanwhile; say whether that led further."""
        moved = False
        for raw in events:
            try:
                event = decode_event(raw)
            except MalformedEvent:
                return False
            if event.epoch != table.epoch:
                return False
            if event.seq <= table.seq:
                moved = True
                continue
            if self.holder.advance_by(event, table, asked=True) is Outcome.REPAIR:
                return False
            self.holder.note("log")
            moved = True
        return moved

    async def _exchange(self) -> None:
        holder, catch_up = self.holder, self.holder.catch_up
        wanted = catch_up.wanted
        if self._pause and wanted is not None and wanted.epoch == self._refused:
            await catch_up.reached_within(self._pause)
        catch_up.begin_whole()
        try:
            with holder.arriving():
                async with asyncio.timeout(SNAPSHOT_SECONDS):
                    read_at = self.monotonic()
                    snapshot = await self.reader.snapshot(self._believe)
                    if snapshot is not None:
                        await self._take(snapshot, read_at)
            self._pause = 0.0
        except (BusUnavailable, TimeoutError) as error:
            log.warning("no snapshot could be had: %s", error or "it took too long")
        except SnapshotRefused as error:
            holder.note("snapshot_refused")
            log.warning("a snapshot was refused: %s", error)
            if isinstance(error, Unsigned):
                # A Redis that holds what nobody signed is not read whole every second.
                holder.note("unproven")
                self._pause = min(max(1.0, self._pause * 2), _LONGEST_PAUSE_SECONDS)

    def _believe(self, head: Head) -> None:
        self.holder.policy.believe(head, self.holder.table)
        if head.epoch != self._refused:
            # Another one, which was signed as well: what was refused says nothing of it.
            self._refused, self._pause = head.epoch, 0.0

    async def _take(self, snapshot: Snapshot, read_at: float) -> None:
        holder, old = self.holder, self.holder.table
        said = holder.policy.believe(snapshot.head, old)
        table = await load_table(snapshot, holder.policy.reader_of(said, self.routes), said)
        holder.adopt(table, read_at=read_at)
        if said is not None and old is not None and is_proven(old):
            for number, sid in enumerate(list(old), 1):
                if sid not in table:
                    holder.policy.note_ended(sid)
                if number % _LOOKED_UP_AT_ONCE == 0:
                    await asyncio.sleep(0)
        if old is not None and old is not holder.table:
            await _free(old)


async def _free(table: RouteTable) -> None:
    has_more = True
    while has_more:
        has_more = table.let_go(_FREED_AT_ONCE)
        await asyncio.sleep(0)


# Loading a whole table while the process goes on serving

_ROUTES_AT_ONCE: Final = 50
"""Loaded before the loop turns: half a millisecond, and some six when all are signed one by one."""
_REVOCATIONS_AT_ONCE: Final = 1000
_BUCKETS_AT_ONCE: Final = 256


async def load_table(
    snapshot: Snapshot, reader: RouteReader, said: SignedHead | None = None
) -> RouteTable:
    """Return the table in *snapshot*; the loop turns often meanwhile.

    Args:
        snapshot: As one server held it.
        reader: Reads its routes.
        said: What the controller has signed of its head: the table then has its proof.

    Raises:
        SnapshotRefused: If it does not hold what its head says.
        Unsigned: If that is not what *said* covers.
    """
    table = RouteTable(snapshot.head, reader)
    proof = TableDigest() if said is not None else None
    # A heartbeat drops revocations that are over without an event: pages may still hold some.
    floor = said.floor if said is not None else 0.0
    for number, (sid, raw) in enumerate(snapshot.routes.items(), 1):
        table.load_route(sid, raw)
        if proof is not None:
            proof.put_route(table.name_of(sid), raw)
        if number % _ROUTES_AT_ONCE == 0:
            await asyncio.sleep(0)
    for number, (member, score) in enumerate(snapshot.revoked.items(), 1):
        if score >= floor:
            table.load_revocation(member, score)
            if proof is not None:
                proof.put_revocation(member, score)
        if number % _REVOCATIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    if proof is not None and said is not None:
        await _check(proof, said)
        table.proof = proof
    table.complete()
    return table


async def _check(proof: TableDigest, said: SignedHead) -> None:
    """Return only if *proof* is that of what was signed."""
    proof.floor = said.floor
    for _ in range(BUCKETS // _BUCKETS_AT_ONCE):
        proof.settle(_BUCKETS_AT_ONCE)
        await asyncio.sleep(0)
    if proof.root.hex() != said.root:
        raise Unsigned(
            f"what Redis holds, {proof.routes} routes and {len(proof.scores)} revocations, is not "
            "what the controller has signed"
        )
