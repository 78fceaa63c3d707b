"""One downstream HTTP/1.1 connection without I/O: bytes and events in, actions out.

::

    bytes ──▶ Connection ──decide──▶ admission ──admitted──▶ connect ──connected──▶ upstream
                  ▲                                                                    │
                  └────────────── response_received, upstream_lost ◀───────────────────┘

- :mod:`.phases` is the table: the phases of a request and its response, which event leads where,
  and what each phase makes of bytes, of a FIN and of a deadline.
- :mod:`.exchange` relays one request and its response, both bodies at once.
- :mod:`.connection` reads one head after the other, refuses, and ends.

Nothing here knows a transport, a loop or a clock. What has to be done is an abstract method, which
:mod:`gateway.relay.http.downstream` carries out and the tests write down as a transcript.
"""
