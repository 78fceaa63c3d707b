"""Repairs a table that is behind its head: from the log, else from a snapshot.

One repair at a time. Followers that lose the bus together read their snapshots at random times.
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
"""The deadline for reading one part of the log."""
SETTLE_SECONDS: Final = 0.02
"""The wait for events under way, which may bring the table to its head without a repair."""
ROUTES_PER_SECOND: Final = 50_000
"""Snapshots are delayed by a random part of the time in which this rate reads the table."""
SNAPSHOT_SECONDS: Final = 60.0
LOG_REACH: Final = 4096
"""A table that is more events behind is read from a snapshot, which is quicker."""

_SIGNED_PART: Final = 64
"""Signed events in one part of the log: about 10 ms of signature checks."""
_LOOKED_UP_AT_ONCE: Final = 5000
_FREED_AT_ONCE: Final = 1000
_LONGEST_PAUSE_SECONDS: Final = 16.0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Repairer:
    """Repairs the table whenever a repair is requested."""

    holder: RouteTableHolder
    reader: BusReader
    routes: RouteReader
    random: Callable[[], float]
    _pause: float = 0.0
    _refused: str = ""
    """The epoch whose snapshot was refused, to which the pause applies."""

    async def run(self) -> None:
        """Repair until cancelled."""
        holder, catch_up = self.holder, self.holder.catch_up
        while True:
            await catch_up.repair_requested()
            await catch_up.reached_within(SETTLE_SECONDS)
            if not holder.is_behind or await self._read_log():
                continue
            await catch_up.reached_within(self._spread())
            if holder.is_behind:
                await self._exchange()

    def _spread(self) -> float:
        """Return a random delay, so that many followers do not read snapshots at once."""
        table = self.holder.table
        # A waiting request concerns one gateway alone, so no spread is needed.
        if self.holder.catch_up.is_awaited or table is None:
            return 0.0
        return self.random() * len(table) / ROUTES_PER_SECOND

    async def _read_log(self) -> bool:
        """Apply the log after the table's seq; return whether the table has reached its head."""
        holder, catch_up = self.holder, self.holder.catch_up
        table = holder.table
        if catch_up.wants_snapshot:
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
        """Return the size of one part of the log; signed events cost a signature check each."""
        return _SIGNED_PART if is_proven(self.holder.table) else LOG_PART

    def _apply_log(self, events: Iterable[bytes], table: RouteTable) -> bool:
        """Apply those of *events* that *table* lacks; return whether to go on with the log."""
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
            if self.holder.advance_by(event, table, from_log=True) is Outcome.REPAIR:
                return False
            self.holder.note("log")
            moved = True
        return moved

    async def _exchange(self) -> None:
        holder, catch_up = self.holder, self.holder.catch_up
        wanted = catch_up.wanted
        if self._pause and wanted is not None and wanted.epoch == self._refused:
            await catch_up.reached_within(self._pause)
        catch_up.wants_snapshot = False
        try:
            with holder.buffering_events():
                async with asyncio.timeout(SNAPSHOT_SECONDS):
                    read_at = holder.monotonic()
                    snapshot = await self.reader.snapshot(self._check_head)
                    if snapshot is not None:
                        await self._take(snapshot, read_at)
            self._pause = 0.0
        except (BusUnavailable, TimeoutError) as error:
            log.warning("cannot read a snapshot of the route table: %s", error or "timed out")
        except SnapshotRefused as error:
            holder.note("snapshot_refused")
            log.warning("refused a snapshot of the route table: %s", error)
            if isinstance(error, Unsigned):
                # Back off: an unsigned table must not be read whole every second.
                holder.note("unproven")
                self._pause = min(max(1.0, self._pause * 2), _LONGEST_PAUSE_SECONDS)

    def _check_head(self, head: Head) -> None:
        self.holder.policy.verify_head(head, self.holder.table)
        if head.epoch != self._refused:
            # The refusal concerned another epoch.
            self._refused, self._pause = head.epoch, 0.0

    async def _take(self, snapshot: Snapshot, read_at: float) -> None:
        holder, old = self.holder, self.holder.table
        signed_head = holder.policy.verify_head(snapshot.head, old)
        table = await load_table(
            snapshot, holder.policy.reader_for(signed_head, self.routes), signed_head
        )
        holder.adopt(table, read_at=read_at, passed_unknown=snapshot.passed_unknown)
        if signed_head is not None and old is not None and is_proven(old):
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
        has_more = table.free(_FREED_AT_ONCE)
        await asyncio.sleep(0)


# Loading a whole table while the process goes on serving

_ROUTES_AT_ONCE: Final = 50
"""Routes loaded between two yields: 0.5 ms, or 6 ms if each route has its own signature."""
_REVOCATIONS_AT_ONCE: Final = 1000
_BUCKETS_AT_ONCE: Final = 256


async def load_table(
    snapshot: Snapshot, reader: RouteReader, signed_head: SignedHead | None = None
) -> RouteTable:
    """Return the table in *snapshot*; yields to the loop often.

    Args:
        snapshot: A consistent copy of the table.
        reader: Reads its routes.
        signed_head: The signed content of its head; the table then gets a proof.

    Raises:
        SnapshotRefused: If the content does not match the head.
        Unsigned: If the content does not have the root hash in *signed_head*.
    """
    table = RouteTable(snapshot.head, reader)
    proof = TableDigest() if signed_head is not None else None
    # A heartbeat drops expired revocations without an event, so a snapshot may still hold some.
    floor = signed_head.floor if signed_head is not None else 0.0
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
    if proof is not None and signed_head is not None:
        await _check(proof, signed_head)
        table.proof = proof
    table.complete()
    return table


async def _check(proof: TableDigest, signed_head: SignedHead) -> None:
    """Check that *proof* has the signed root hash."""
    proof.floor = signed_head.floor
    for _ in range(BUCKETS // _BUCKETS_AT_ONCE):
        proof.settle(_BUCKETS_AT_ONCE)
        await asyncio.sleep(0)
    if proof.root.hex() != signed_head.root:
        raise Unsigned(
            f"the table in Redis ({proof.routes} routes, {len(proof.scores)} revocations) is not "
            "the one that the controller has signed"
        )
