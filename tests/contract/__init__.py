"""Black-box tests of the gateway, written from its contracts alone.

The gateway runs as a process, and the tests import nothing of it. The tests make tokens, events
and the contents of Redis with code of their own. So they also find mistakes in the code that both
processes share. Both peers of the gateway are raw sockets that record every byte.

- ``streams``, ``messages`` and ``frames`` implement TCP, HTTP and WebSocket strictly.
- ``tokens`` plays the orchestrator, ``bus`` the controller, and ``upstream`` the apps.
- ``rig`` starts Redis and the gateway, and connects them.
- ``data`` holds lists of cases, one case a line.
"""
