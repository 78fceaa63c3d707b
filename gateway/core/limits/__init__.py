"""Limits on what one client may use of a worker, as pure counts and tables.

- :mod:`.values` holds the limits; docs/limits.md says which of them are settings.
- :mod:`.connection_quota` counts connections and selects which to evict; :mod:`.rates` limits
  rates.
- :mod:`.addresses` derives a client's rate-limit key; :mod:`.proxy_header` reads PROXY headers.
- :mod:`.overload` is the table of load shedding.
"""
