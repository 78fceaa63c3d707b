"""The job as an orchestrator asks for it, and as it is kept; refusals name each problem's path.

- ``model``, ``parameters``, ``field_types``: the fields. ``problems``: what is wrong.
- ``validation``: tasks, policies and product; what is behind a finding on the manifest.
- ``storage``: its files, and which folder of which claim each is.
- ``endpoints``: how people and peers reach a rank, and which other jobs it names.
- ``accepted``: the stored form, its secrets apart and sealed.

Source: docs/controller-api.md.
"""
