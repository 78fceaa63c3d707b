"""Redis between controller and gateways: where the route table lives and its events travel.

A :class:`Publisher` changes the table and announces the change in one script, which refuses when
Redis holds anything else than the publisher believes. A :class:`BusReader` reads the head, the
log of events and snapshots, subscribes, and marks tokens as used.

- ``keys``: what is where.
- ``urls``, ``connection``: the URL of one Redis, of Sentinels or of a Redis Cluster becomes a
  client, and what it raises an error of ours.
- ``scripts``: the three scripts in which everything is written.
- ``publisher``, ``reader``: the two sides; ``signing``: what a publisher with a key signs.
- ``reports``: what gateways tell the controller, for display; ``sign_out_requests``: which grants
  it is to revoke, since their users have signed out.

``inspection``: how one session stands, for people.

docs/proxy-events.md is the contract.
"""

from shared.bus.connection import connect
from shared.bus.inspection import BusInspector, BusStanding
from shared.bus.keys import CALL_SECONDS, HEARTBEAT_SECONDS, LOG_LENGTH, Keys
from shared.bus.publisher import Publisher
from shared.bus.reader import LOG_PART, BusReader, LogPart, Mark, Snapshot, parse_head
from shared.bus.reports import ACTIVITIES_AT_ONCE, ReportReader, ReportWriter
from shared.bus.sign_out_requests import (
    SignOutReader,
    SignOutRequest,
    SignOutRequests,
    SignOutWriter,
    comparable_id,
)
from shared.bus.urls import check_url

__all__ = [
    "ACTIVITIES_AT_ONCE",
    "CALL_SECONDS",
    "HEARTBEAT_SECONDS",
    "LOG_LENGTH",
    "LOG_PART",
    "BusInspector",
    "BusReader",
    "BusStanding",
    "Keys",
    "LogPart",
    "Mark",
    "Publisher",
    "ReportReader",
    "ReportWriter",
    "SignOutReader",
    "SignOutRequest",
    "SignOutRequests",
    "SignOutWriter",
    "Snapshot",
    "check_url",
    "comparable_id",
    "connect",
    "parse_head",
]
