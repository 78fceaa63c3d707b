"""The recorded history of a job: its state, its attempts, and each of its pods.

- ``job_record``: the state machine as a table; reads a job's record, also a newer version's, and
  changes it as the leader. ``explanations``: reasons in words.
- ``pod_records``: the records of pods and how these ended. ``retries``, ``policy_timers``: what
  follows from them by the job's policies. ``failures``: why a job failed.
- ``retention``: deletes records of jobs that ended long ago.

The reconciler writes the records; the API and the ledger read them. Sources: docs/controller.md,
Volcano's job lifecycle policies.
"""
