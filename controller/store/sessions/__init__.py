"""Queries on interactive sessions.

- ``session_rows``: sessions, and pages of them. ``revocations``: revocations of grants.
"""
