"""The job as an orchestrator requests it, and as it is stored; problems have paths.

- ``model``, ``parameters``, ``field_types``: the fields. ``problems``: problems and paths.
- ``validation``: checks of tasks, policies and product; maps findings on the manifest to the job.
- ``storage``: the claim and the folder of each file of the job.
- ``endpoints``: the ways of users and peers to a rank, and the jobs that a job names.
- ``accepted``: the stored form, with secrets apart and sealed.

Source: docs/controller-api.md.
"""
