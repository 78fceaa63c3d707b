"""Queries on jobs.

- ``job_rows``: the jobs. ``tombstones``: what is left of a job.
- ``job_lists``: pages of jobs, by any filters. ``totals``: what jobs take together.
- ``batches``: jobs that were asked for together. ``tools``: what is attached.
- ``progress``: what has been done for a job. ``between_jobs``: what jobs have of each other.
"""
