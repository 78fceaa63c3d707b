"""Accepts jobs and commands of orchestrators: a call is stored before it is answered.

- ``accept``: stores the jobs of a call, and the batch that they form.
- ``checking``: validates and plans jobs, and completes what is stored with them.
- ``batch_template``: makes the jobs of a batch from one template.
- ``dry_run``: tries a job on the API server before the job is accepted.
- ``reservations``: public names, predecessors and peers, reserved in the accepting transaction.
- ``commands``: end, suspend, resume, more time; the reconciler carries them out.

Source: docs/controller-api.md.
"""
