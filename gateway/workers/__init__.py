"""Several processes behind one port: ``FUMAROLE_GATEWAY_WORKERS``.

::

    supervisor      follows the bus, keeps the table, serves the ops listener      supervise
      ├─ nursery    forks workers and reaps them: no threads, no loop, no state    nursery
      │    └─ worker 0, 1, …   serve browsers, as the one process does otherwise   work
      └─ a socket to each worker: the table and its changes go down                feeding, fed
         (messages), what the worker counts and how it stands comes up

What was read and verified once is encoded once and kept in a bounded journal, of which each
worker is sent the rest that it has not got; who falls behind the journal, or is new, is sent the
table. So nobody waits for a worker, and a worker that does not move costs a bounded amount until
it is ended and started anew (staff). All take connections from one inherited socket, each its
share (accepting).
"""
