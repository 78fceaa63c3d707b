"""The gateway's decisions, without I/O: bytes and state in, values and actions out.

A request passes the packages in this order:

- :mod:`.http` is the syntax: it reads heads strictly, writes them in canonical form, and frames
  bodies.
- :mod:`.downstream` is the state machine of one downstream connection.
- :mod:`.access` makes the access decision: grants, origins, tokens, and the table of refusals.
- :mod:`.limits` holds the limits: connections, rates, addresses, load.
- :mod:`.frames` follows WebSocket frames; :mod:`.rfb` is the protocol of desktops.
- :mod:`.bus_state` derives the state of the bus.
"""
