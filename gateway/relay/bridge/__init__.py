"""Bridges: the gateway's end of a desktop or terminal, which parses its WebSocket frames.

An upgrade to ``/.fumarole/connect`` on a vnc or terminal route that was admitted (grant, origin,
route) is not relayed. A factory makes a bridge for the route's kind, and the bridge gets the
transport for good (:class:`gateway.relay.context.UpgradeRequest`)::

    websocket_bridge       the downstream connection: opening, flow control, the end
    downstream_frames      its frames, by the sans-I/O protocol of ``websockets``, and its pings
    upstream_connections   the upstream connection: plain TCP, or a WebSocket server
    buffers                received bytes to be parsed, some in each turn; Pongs to be written
    vnc, terminal          join the two: RFB for desktops, the hub's protocol for terminals

Bytes go from ``websocket_bridge`` through ``vnc`` or ``terminal`` to ``upstream_connections``, and
back. Backpressure takes the same path: while one side is not read, neither is the other.
"""
