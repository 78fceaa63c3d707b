"""Queries on interactive sessions.

- ``session_rows``: the sessions, and pages of them. ``revocations``: of grants.
"""
