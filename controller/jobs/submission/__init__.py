"""Takes jobs and commands from orchestrators: what is answered is in the store already.

- ``accept``: validates jobs, plans them, and stores all or each.
- ``batch_template``: the jobs of a batch, made of one template. ``batches``: the batch itself,
  kept in the accepting transaction, with what became of each job.
- ``dry_run``: what the API server says to a job before it is accepted.
- ``reservations``: public names, predecessors and a place beside peers, taken in the accepting
  transaction.
- ``commands``: end, pause, resume, more time; the reconciler carries them out.

Source: docs/controller-api.md.
"""
