"""What both processes need to start, listen and end.

- ``process``: command line, signals, file descriptors, garbage collector and address file.
- ``serving``: listening sockets, and an aiohttp application on them.
"""
