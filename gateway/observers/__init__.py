"""Observers of connections: :class:`gateway.live.ConnectionRegistry` notifies of each connection.

- :mod:`.audit_log` records who opened, used and left which session.
- :mod:`.reporter` tells the controller of activity and failures, for display.
"""
