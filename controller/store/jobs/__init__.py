"""Queries on jobs.

- ``job_rows``: the jobs. ``progress``: attempts, companions, due times. ``pods``: every pod seen.
- ``hook_runs``, ``timers``, ``extensions``: hooks that ran, policies' timeouts, added time.
- ``connections``, ``public_links``, ``places``, ``mount_points``: names and folders that jobs
  hold.
- ``job_lists``: pages of jobs, by any filters.
- ``totals``: what jobs take together.
"""
