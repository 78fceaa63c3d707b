"""Queries on jobs.

- ``job_rows``: jobs. ``tombstones``: deleted jobs. ``job_lists``: filtered pages of jobs.
- ``totals``: the demand of all jobs, and queue positions.
- ``batches``: jobs of one template. ``tools``: tools that are attached to jobs.
- ``progress``: attempts, companions, pods, timers, and the plugins' hooks; ``hook_failures``: hooks
  that failed; ``existing_companions``: companions that another client may have deleted.
- ``stored_logs``: logs of pods.
- ``relations``: peers and predecessors. ``folders``: folders that owners and jobs hold.
- ``public_links``: public names.
"""
