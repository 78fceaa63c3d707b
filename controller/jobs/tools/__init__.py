"""Tools: programs such as TensorBoard, attached to a running job and gone with it.

What is attached to a job is a row of its own (``controller.store.jobs.tools``). Each time that the
rank which it looks at begins, it is *run*: by a VolcanoJob of its own with one pod, whose record is
kept, followed, charged and removed as a job's is, and which no list or update shows.

- ``runs``: when a tool is run, when its run is to end, and how it is shown. No I/O.
- ``plans``: what is run for a tool of a job, what its pod is made by, and how it is checked.
- ``attachments``: attaches and removes tools, for the API and for jobs that are submitted.

Flow: attachments → store → reconcile of the job: ``StartTool`` → that of the run → ``EndTool``.
"""
