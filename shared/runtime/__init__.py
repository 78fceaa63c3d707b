"""How both processes are started, heard and ended.

- ``process``: arguments, signals, addresses and descriptors.
- ``serving``: sockets, and an aiohttp application on them.
"""
