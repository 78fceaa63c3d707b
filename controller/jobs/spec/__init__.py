"""The job as an orchestrator asks for it, and as it is kept; refusals name each problem's path.

- ``model``, ``parameters``: the fields. ``problems``: what is wrong, with its path.
- ``validation``: tasks, policies and product. ``amounts``: of resources.
- ``paths``, ``storage``: its files, and which folder of which claim each is.
- ``endpoints``: how people and peers reach a rank.
- ``owners``, ``peers``: whose the job is, and which other jobs it names.
- ``accepted``: the stored form, secrets apart. ``origins``: from a manifest's field to the job's.

Source: docs/controller-api.md.
"""
