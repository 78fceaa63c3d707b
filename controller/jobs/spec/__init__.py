"""The job as an orchestrator requests it, and as it is stored; problems have paths.

- ``model``, ``scheduling``, ``parameters``, ``field_types``: the fields. ``problems``: problems
  and paths.
- ``job_paths``: maps findings on the VolcanoJob to the parts of the job that cause them.
- ``storage``: the claim and the folder of each file of the job.
- ``endpoints``: the ways of users and peers to a rank, and the jobs that a job names.
- ``accepted``: the stored form, with secrets apart and sealed.

Source: docs/controller-api.md.
"""
