"""The gateway: browsers in, jobs' notebooks, desktops and shells out.

A browser's request passes :mod:`gateway.relay` (connections), is judged by :mod:`gateway.core`
(rules, no I/O) against the route table that :mod:`gateway.bus` keeps from Redis, and goes to
an app, to a bridge, or to the gateway's own :mod:`gateway.pages`. :mod:`gateway.live` holds every
open connection by its right, and ends it with that. :mod:`gateway.app` assembles one process,
:mod:`gateway.workers` runs several behind one port.

What parts are given of the world has the same name everywhere: ``wall`` returns unix seconds,
``monotonic`` and ``clock`` seconds that never go back, ``random`` a number from 0 to below 1.
"""
