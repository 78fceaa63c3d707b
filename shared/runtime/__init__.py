"""How both processes are started, heard and ended.

- ``command_line``, ``process``: arguments; signals, addresses and descriptors.
- ``listening``, ``serving``: sockets, and an aiohttp application on them.
"""
