"""Tools: programs such as TensorBoard that are attached to a running job and end with it.

An attached tool is a row of its own (``controller.store.jobs.tools``). Whenever the rank that it
observes starts, the tool is *run* by a VolcanoJob of its own with one pod. A run has a record and
is reconciled, charged and removed as a job is, but no list or update shows it.

- ``runs``: when a tool runs, when its run ends, and how it is shown. No I/O.
- ``plans``: the run of a tool of a job: the plan of its pod, and its checks.
- ``attachments``: attaches and removes tools, for the API and for submitted jobs.

Flow: attachments → store → reconcile of the job: ``StartTool`` → reconcile of the run →
    ``EndTool``.
"""
