"""Queries on what jobs have of each other, and what only one of them can have.

- ``connections``: peers, and jobs that are waited for.
- ``public_links``, ``places``: names and folders that jobs hold.
"""
