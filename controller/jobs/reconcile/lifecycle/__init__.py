"""Decides the next step for a job, without I/O and without state.

- ``next_step``: ``decide``, by the job's record and the phase of its VolcanoJob.
- ``missed_policies``: policies that Volcano has missed.
- ``failure``: the end or another attempt after a failure; timed policies; sidecars.
- ``removal``: the order in which a job's objects are deleted.
- ``observed_state``: the input of the decision. ``steps``: its possible results.

Each imports only those below it, from ``next_step`` down to ``steps``.
"""
