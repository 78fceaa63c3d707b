"""The start, the listeners and the end of both processes.

- ``process``: command line, signals, file descriptors, garbage collector and address file.
- ``listeners``: listening sockets, and an aiohttp application on them.
- ``ops``: the application of the ops listener: health, readiness and metrics.
"""
