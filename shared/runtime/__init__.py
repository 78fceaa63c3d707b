"""How both processes are started, heard, watched and ended.

- ``command_line``, ``process``: arguments; signals, addresses and descriptors.
- ``listening``, ``serving``: sockets, and an aiohttp application on them.
- ``log``, ``metrics``: what operators read.
"""
