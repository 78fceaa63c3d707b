"""Queries on what has been done for a job, and what was seen of it.

- ``attempts``: attempts, companions, every pod that was ever seen, policies with a timeout, and
  added time. ``hook_runs``: hooks of plugins, and their due times.
- ``stored_logs``: logs.
"""
