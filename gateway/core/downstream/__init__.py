"""One downstream HTTP/1.1 connection without I/O: bytes and events in, actions out.

::

    bytes ──▶ Connection ──decide──▶ admission ──admitted──▶ connect ──connected──▶ upstream
                  ▲                                                                    │
                  └────────────── response_received, upstream_lost ◀───────────────────┘

- :mod:`.phases` is the table: the phases of a request and its response, and which event leads
  where.
- :mod:`.exchange` relays one request and its response, both bodies at the same time.
- :mod:`.connection` reads heads, refuses requests, and ends the connection.
- :mod:`.actions` is what they ask for. :mod:`gateway.relay.http.downstream` performs it, tests
  record it.
- :mod:`.cached_decision` reuses an access decision; :mod:`.end_notice` announces a session's end.

Nothing here knows a transport, a loop or a clock.
"""
