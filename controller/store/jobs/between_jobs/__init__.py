"""Queries on what jobs have of each other, and what only one of them can have.

- ``connections``: peers. ``predecessors``: jobs that are waited for.
- ``public_links``, ``places``, ``mount_points``: names and folders that jobs hold.
"""
