"""The errors of the store.

FumaroleError
└── StoreError
    ├── StoreUnavailable   the database cannot be reached, or did not respond in time
    │   ├── StoreFull      it is out of space, memory or connections
    │   └── TableIsBusy    a table that a migration changes is in use
    ├── AlreadyThere       another request has added a job with this id
    └── LeadershipLost     another controller leads: nothing was written
"""

from __future__ import annotations

from shared.errors import FumaroleError


class StoreError(FumaroleError):
    """The store could not execute the request."""


class StoreUnavailable(StoreError):
    """The database is unavailable; a writing transaction has written nothing."""


class StoreFull(StoreUnavailable):
    """The database is out of space, memory or connections; smaller writes may succeed."""


class TableIsBusy(StoreUnavailable):
    """A table that a migration changes is in use; the migration is tried again."""


class AlreadyThere(StoreError):
    """A job with this id exists: it was added since this transaction looked."""


class LeadershipLost(StoreError):
    """Another controller leads; the transaction was rolled back."""
