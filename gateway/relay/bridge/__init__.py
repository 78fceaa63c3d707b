"""Bridges: the gateway's end of a desktop or a terminal, whose WebSocket frames are ours.

An upgrade to ``/.fumarole/connect`` on a vnc or terminal route that has been allowed (grant,
origin, route) is not relayed. A factory makes a bridge for the route's kind, and the bridge gets
the transport for good (:class:`gateway.relay.context.UpgradeRequest`)::

    websocket_bridge       the downstream connection: opening, flow control, the end
    downstream_frames      its frames, by the sans-I/O protocol of ``websockets``
    keepalive              its pings
    upstream_connections   the upstream connection: plain TCP, or a server that speaks WebSocket
    intake                 what came and is not understood yet: some of it in each turn
    socket_output          Pongs and Closes of the library's own, while they can be written
    vnc, terminal          joins the two: RFB for desktops, the hub's protocol for terminals

Bytes go from ``websocket_bridge`` through ``vnc`` or ``terminal`` to ``upstream_connections``,
and back. Backpressure passes the same way: a side that is not read stops the other from being read.
"""
