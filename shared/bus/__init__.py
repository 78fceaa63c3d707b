"""The bus: Redis between controller and gateways, which holds the route table and its events.

A :class:`Publisher` changes the table and publishes the change in one script, which refuses if
Redis does not hold what the publisher expects. A :class:`BusReader` reads the head, the log of
events and snapshots, subscribes to events, and marks tokens as used.

Each call raises :class:`shared.errors.BusUnavailable` if Redis does not respond or refuses; a write
may have taken effect then.

- ``keys``: the names of the keys.
- ``urls``, ``connection``: make a client from the URL of one Redis, of Sentinels or of a Redis
  Cluster (``cluster``), with or without ``tls``. ``translation``: of its exceptions; ``parser``: of
  its responses.
- ``scripts``: the three scripts that write the table.
- ``publisher``, ``reader``: the two sides; ``signing``: signs the heads of a publisher.
- ``report_store``: reports of gateways to the controller, and the state of one session.
- ``sign_out_requests``: grants that the controller shall revoke after sign-outs.

The contract is docs/proxy-events.md.
"""

from shared.bus.connection import connect
from shared.bus.keys import CALL_SECONDS, HEARTBEAT_SECONDS, LOG_LENGTH, Keys
from shared.bus.publisher import Publisher
from shared.bus.reader import LOG_PART, BusReader, LogPart, Mark, Snapshot, parse_head
from shared.bus.report_store import (
    ACTIVITIES_AT_ONCE,
    BusInspector,
    BusStanding,
    ReportReader,
    ReportWriter,
)
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
