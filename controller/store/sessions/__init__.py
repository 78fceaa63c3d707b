"""Queries on interactive sessions.

- ``session_rows``: the sessions. ``session_lists``: pages of them.
- ``revocations``, ``hubs``: of grants; of terminals.
"""
