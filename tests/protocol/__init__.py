"""Tests the protocol between publisher and followers: a simulation, a model, a chaos run.

- ``virtual``: an event loop whose time advances only when no task is ready.
- ``memory``: a Redis in memory that fails on demand; ``test_memory`` compares it with a real one.
- ``world``: a leader and its followers around that Redis, and the invariants of the protocol.
"""
