"""Tools: programs such as TensorBoard, attached to a running job and gone with it.

What is attached to a job is a row of its own (``controller.store.jobs.tools``). Each time that the
rank which it looks at begins, it is *run*: by a VolcanoJob of its own with one pod, whose record is
kept, followed, charged and removed as a job's is, and which no list or update shows.

- ``shape``: what is run for a tool of a job, and what its pod is made by. No I/O.
- ``runs``: when a tool is run, when its run is to end, and how it is shown. No I/O.
- ``plans``: what would be run for tools that are asked for, as plugins and the API server see it.
- ``attachments``: attaches and removes tools, for the API and for jobs that are submitted.

Flow: attachments → store → reconcile of the job: ``StartTool`` → that of the run → ``EndTool``.
"""
