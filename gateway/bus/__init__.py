"""The bus, followed: the route table in this process is kept in step with the one in Redis.

::

    Redis ── events ──▶ follower     applies each event that is the next one, and looks at the
      │                              head at any other
      ├──── head ─────▶ head_poller  reads the head every second, or at once when asked
      └─ log, snapshot ▶ repairer    reads what the table lacks: the log, else all of it
                            │
                            ▼
                         holder      the table in use: changed by the next event in order, or
                            │        exchanged for a better one; tells what a change concerns
                            ▼
                    relay, pages     read the table, and how the bus stands, from the holder

``catch_up`` stands between them: which head the table has to reach, which requests wait until it
has, and whether a look or a repair is wanted. ``own_thread`` makes the calls that are waited for,
where no busy turn delays them. ``head_policy`` decides which heads, tables and events are believed.
``measures`` shows operators where the table stands. No request waits for any of this but in
:meth:`holder.RouteTableHolder.repair`. docs/proxy-events.md, "Following", is the contract.
"""
