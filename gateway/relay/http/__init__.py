"""HTTP between browsers and apps: the machine of :mod:`gateway.core.http` on transports.

- :mod:`.downstream` carries out what a connection's machine decides, and :mod:`.relaying` what of
  it concerns the app: dialling, the pool.
- :mod:`.admission` has requests judged, and sends them on their way: to an app, to a page, to a
  bridge.
- :mod:`.upstream` are the connections to apps, and the pool of unused ones.
- :mod:`.large_bodies`, :mod:`.splice`, :mod:`.pipes` and :mod:`.readiness` have the kernel move
  large bodies.
- :mod:`.page_connection` gives a request to the gateway's own pages.
"""
