"""What must outlive a process, in SQL: SQLite for one machine, PostgreSQL for several.

- ``tables``: the tables. ``migrations``: how a database becomes that.
- ``database``: connections and transactions: reading, writing, writing as the leader.
  ``sqlite``: how that is done without keeping the event loop waiting.
- ``jobs``, ``sessions``, ``outbox``, ``instance``: queries, each taking a transaction, so that a
  caller decides what belongs together.
- ``paging``: pages of rows that cost the same however many rows there are.
- ``news``: hears at once of other processes' writes. ``probing``: whether writes are taken.

Several processes share one SQLite file (controller and hub): every writing transaction takes the
write lock when it begins, so that none fails half-way because another one wrote meanwhile. In
PostgreSQL rows are locked in one order: jobs, then the position, then counters. Statements that
are made for every job are made once, when their module is loaded: to put one together, and to find
it among those that are compiled, costs more than it takes SQLite to carry it out.
"""
