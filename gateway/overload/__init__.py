"""A worker that nears its memory bound sheds load: :mod:`gateway.core.limits.overload`.

- :mod:`.memory` reads what the process uses, and what its control groups allow it.
- :mod:`.watch` measures four times a second, sets the step, and closes what is to be closed.

The data path reads the step with every connection and request.
"""
