"""What one party may take of a worker, as pure counts and tables.

- :mod:`.values` are the numbers; docs/limits.md says which of them are settings.
- :mod:`.connection_quota` counts connections, and says which make room; :mod:`.rates` how often.
- :mod:`.addresses` says by what a client is counted; :mod:`.proxy_header` who is behind a proxy.
- :mod:`.overload` is the table of load shedding.
"""
