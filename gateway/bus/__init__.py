"""Keeps the route table of this process in step with the one in Redis.

::

    Redis ── events ──▶ follower     applies the next event in order; any other event causes a
      │                              read of the head
      ├──── head ─────▶ head_poller  reads the head every second, or at once on request
      └─ log, snapshot ▶ repairer    reads what the table lacks: from the log, or a snapshot
                            │
                            ▼
                         holder      holds the table in use; applies events, replaces the table,
                            │        and notifies of the sessions that changed
                            ▼
                    relay, pages     read the table and the state of the bus from the holder

- ``catch_up`` is shared by them: the head that the table has to reach, the requests that wait
  for it, and whether a read of the head or a repair has been requested.
- ``own_thread`` makes the Redis calls that requests wait for, so that a busy loop does not delay
  them.
- ``head_policy`` decides which heads, tables and events are accepted.
- ``metrics`` exports metrics and ``/debug/routes``.

Only :meth:`holder.RouteTableHolder.repair` makes a request wait for Redis. The contract is
docs/proxy-events.md, "Following".
"""
