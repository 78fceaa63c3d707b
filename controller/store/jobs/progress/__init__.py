"""Queries on what has been done for a job, and what was seen of it.

- ``attempts``: attempts, companions, due times, and every pod that was ever seen.
- ``hook_runs``: hooks of plugins. ``timers``: policies with a timeout, and added time.
- ``stored_logs``: logs.
"""
