"""Decides the next step for a job. No I/O, and nothing remembered: the same gives the same.

- ``next_step``: ``decide``, a job that is not submitted yet, its VolcanoJob, phase by phase, and
  the way out of the cluster.
- ``failure``: an end or another attempt, where it failed or was stopped; policies with a timeout;
  sidecars that keep pods running.
- ``observed_state``: a job in store and cluster at one moment. ``steps``: what may be done for it.

Each imports only those below it, from ``next_step`` down to ``steps``.
"""
