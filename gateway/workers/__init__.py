"""Several gateway processes behind one port: ``FUMAROLE_GATEWAY_WORKERS``.

::

    supervisor            starts, monitors and replaces workers (pool), serves     supervise
      │                   the ops listener with the sums of their metrics (sums)
      ├─ fork server      forks and reaps workers; has no threads and no loop      fork_server
      │    └─ worker 0, 1, …   a complete gateway, which follows the bus itself    run
      └─ a socket to each worker: status requests and the drain go down, status   channel
         and metrics come up, sign-outs go both ways

Each worker learns of revocations from the bus itself, not from another worker or the supervisor. A
worker that was suspended therefore delays nobody, and reads the head before it serves on. All
workers accept from one inherited socket, each its share (shares).
"""
