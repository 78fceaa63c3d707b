"""Decides the next step for a job. No I/O, and nothing remembered: the same gives the same.

- ``next_step``: ``decide``, and a job that is not submitted yet.
- ``submitted``: its VolcanoJob, phase by phase. ``timed_policies``: policies that have a timeout.
- ``failure``: an end or another attempt, where the VolcanoJob failed or Volcano stopped it.
- ``removal``: the way out of the cluster, once the end is decided.
- ``observed_state``: a job in store and cluster at one moment. ``steps``: what may be done for it.

Each imports only those below it, from ``next_step`` down to ``steps``.
"""
