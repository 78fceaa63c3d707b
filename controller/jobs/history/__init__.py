"""The recorded history of a job: its state, its attempts, and each of its pods.

- ``job_record``: the state machine as a table; reads a job's record, also a newer version's, and
  changes it as the leader. ``explanations``: why a job waits, in words.
- ``pod_records``: the records of pods and how these ended. ``retries``, ``policy_timers``: the
  effects of the job's policies on them. ``failures``: why a job failed.
- ``retention``: deletes records of jobs that ended long ago.

The reconciler writes the records; the API and the ledger read them. Sources: docs/controller.md,
Volcano's job lifecycle policies.
"""
