"""HTTP between browsers and apps: the state machine of :mod:`gateway.core` on transports.

- :mod:`.downstream` performs a connection's actions; :mod:`.relaying` those on the upstream side:
  dialling, the pool.
- :mod:`.admission` gets the access decision and sends a request on: to an app, a page or a bridge.
- :mod:`.upstream` has the upstream connections and the pool of idle ones.
- :mod:`.large_bodies` lets the kernel move large bodies, through :mod:`.pipes`.
- :mod:`.page_connection` hands a request over to the gateway's own pages.
"""
