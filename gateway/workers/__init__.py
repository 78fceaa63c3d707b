"""Several processes behind one port: ``FUMAROLE_GATEWAY_WORKERS``.

::

    supervisor            starts, watches and replaces workers (pool), serves      supervise
      │                   the ops listener: metrics as one gateway's (sums)
      ├─ fork server      forks workers and reaps them: no threads, no loop        fork_server
      │    └─ worker 0, 1, …   a whole gateway, which follows the bus itself       run
      └─ a socket to each worker: requests and the drain go down, how the worker  channel
         stands and what it counts comes up; sign-outs go both ways

No worker needs another one, or the supervisor, to know what was withdrawn: one that stands still
holds nobody up, and looks at the bus before it serves on. All take connections from one inherited
socket, each its share (shares).
"""
