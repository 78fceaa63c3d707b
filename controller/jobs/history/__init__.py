"""What is recorded of a job: its state, its attempts, and every pod that was seen for it.

- ``states``: the states and transitions as a table. ``explanations``: reasons in words.
- ``job_record``: reads a job's row, also a newer version's, and changes it as the leader.
- ``pod_records``: pods and how they ended. ``retries``, ``policy_timers``: what the job's policies
  make of them.
- ``retention``: forgets jobs that have long been over.

The reconciler writes the records; the API and the ledger read them. Sources: docs/controller.md,
Volcano's job lifecycle policies.
"""
