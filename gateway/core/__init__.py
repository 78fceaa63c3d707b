"""What the gateway decides, without I/O: bytes and facts in, values and actions out.

A request passes the packages in this order:

- :mod:`.http` is the syntax: heads are read strictly and written in canonical form, bodies framed.
- :mod:`.downstream` is one browser's connection: the phases of a request and its response.
- :mod:`.access` decides each request: grants, origins, how a token opens a session, and the table
  of the gateway's own answers.
- :mod:`.limits` are the bounds: connections, rates, addresses, load.
- :mod:`.frames` follows WebSocket frames, :mod:`.rfb` the protocol of desktops.
- :mod:`.bus_state` says how the bus stands.
"""
