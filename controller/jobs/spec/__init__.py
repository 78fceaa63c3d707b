"""The job as an orchestrator requests it, and as it is stored; problems have paths.

- ``model``, ``parameters``, ``field_types``: the fields. ``problems``: problems and paths.
- ``validation``: checks of tasks, policies and product; maps findings on the manifest to the job.
- ``storage``: which folder of which claim each file of the job is.
- ``endpoints``: how users and peers reach a rank, and which other jobs a job names.
- ``accepted``: the stored form, with secrets apart and sealed.

Source: docs/controller-api.md.
"""
