"""Takes jobs and commands from orchestrators: what is answered is in the store already.

- ``accept``: stores all jobs or each, with the batch that they make.
- ``checking``: validates jobs, plans them, and fills in what is kept with them.
- ``batch_template``: the jobs of a batch, made of one template.
- ``dry_run``: what the API server says to a job before it is accepted.
- ``reservations``: public names, predecessors and a place beside peers, taken in the accepting
  transaction.
- ``commands``: end, pause, resume, more time; the reconciler carries them out.

Source: docs/controller-api.md.
"""
