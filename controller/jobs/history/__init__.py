"""What is recorded of a job: its state, its attempts, and every pod that was seen for it.

- ``job_record``: the states as a table; reads a job's row, also a newer version's, and changes it
  as the leader. ``explanations``: reasons in words.
- ``pod_records``: pods and how they ended. ``retries``, ``policy_timers``: what the job's policies
  make of them.
- ``retention``: forgets jobs that have long been over.

The reconciler writes the records; the API and the ledger read them. Sources: docs/controller.md,
Volcano's job lifecycle policies.
"""
