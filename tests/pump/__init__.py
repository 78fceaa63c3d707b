"""Sends many bytes through each kind of connection, both ways, and compares them by hash."""
