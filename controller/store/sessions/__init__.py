"""Queries on interactive sessions (``session_rows``), ``revocations`` and terminal ``hubs``."""
