"""Decides the next step for a job, without I/O and without state.

- ``next_step``: ``decide``, by the job's record and the phase of its VolcanoJob; the removal.
- ``failure``: the end or another attempt after a failure; timed policies; sidecars.
- ``observed_state``: what is decided by. ``steps``: what may be decided.

Each imports only those below it, from ``next_step`` down to ``steps``.
"""
