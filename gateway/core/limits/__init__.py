"""Limits on what one client may use of a worker, as pure counts and tables.

- :mod:`.values` holds the limits; docs/limits.md says which of them are settings.
- :mod:`.connection_quota` counts connections and selects which to evict; :mod:`.rates` limits
  rates.
- :mod:`.addresses` derives a client's address and rate-limit key, and reads PROXY headers.
- :mod:`.overload` is the table of load shedding.
"""
