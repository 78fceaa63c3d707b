"""The gateway connects browsers to the notebooks, desktops and shells of jobs.

A request takes this way:

1. :mod:`gateway.relay` reads it from a downstream connection.
2. :mod:`gateway.core` (rules, no I/O) decides it by the route table that :mod:`gateway.bus`
   follows in Redis. :mod:`gateway.credentials` verifies tokens and signs users out.
3. It goes to an app, to a bridge, or to the gateway's own :mod:`gateway.pages`, whose front-end
   sources are in ``gateway/web``.
4. :mod:`gateway.live` registers the connection and ends it when its access right ends.
   :mod:`gateway.observers` notes that, for the audit log and for the controller.

:mod:`gateway.app` assembles one process and :mod:`gateway.serving` runs it; :mod:`gateway.workers`
runs several behind one port. :mod:`gateway.overload` sheds load near the memory bound.

Injected functions have the same name everywhere: ``wall`` returns unix seconds, ``monotonic`` and
``clock`` return seconds that never go back, ``random`` returns a number from 0 to below 1.
"""
