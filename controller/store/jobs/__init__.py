"""Queries on jobs.

- ``job_rows``: the jobs. ``tombstones``: what is left of a job.
- ``job_lists``: pages of jobs, by any filters. ``totals``: what jobs take together.
- ``batches``: jobs that were asked for together. ``tools``: what is attached.
- ``progress``: attempts, companions, every pod that was ever seen, timers, hooks of plugins.
  ``stored_logs``: logs.
- ``between_jobs``: peers, jobs that are waited for, and folders that jobs hold.
  ``public_links``: names that jobs hold.
"""
