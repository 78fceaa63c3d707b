"""The durable state, in SQL: SQLite on one machine, PostgreSQL for several replicas.

- ``tables``: the tables. ``migrations``: how a database reaches their schema.
- ``database``: connections; transactions that read, write, or write as the leader.
  ``sqlite``: SQLite without blocking the event loop. ``postgresql``: its limits and locks.
- ``jobs``, ``sessions``, ``outbox``, ``instance``: queries. Each takes a transaction, so that the
  caller decides what is atomic.
- ``paging``: pages whose cost does not depend on the number of rows.
- ``notifications``: of other processes' writes. ``probing``: whether the store is writable.

Several processes share one SQLite file (controller and hub). A writing transaction takes the write
lock when it begins, so that it cannot fail half-way because of another writer. In PostgreSQL, rows
are locked in one order: jobs, then ``position``, then counters. Statements that run for every job
are built when their module is loaded: building a statement and finding its compiled form costs
more than SQLite takes to execute it.
"""
