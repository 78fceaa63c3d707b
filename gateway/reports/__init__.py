"""What this process reports to the controller, for display: docs/proxy-events.md, "Reports".

::

    Live, relay ──▶ activity (counts, by session) ──▶ reporter ──▶ Redis, every 2 s
    relay ──▶ failures (the last of each session) ──▶
"""
