"""Load shedding by a worker near its memory bound: :mod:`gateway.core.limits.overload`.

- :mod:`.memory` reads the memory in use and the limits of the control groups.
- :mod:`.watch` measures four times a second, sets the step, and closes connections.

The data path reads the step with every connection and request.
"""
