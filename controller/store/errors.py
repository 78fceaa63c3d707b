"""What the store raises.

FumaroleError
└── StoreError
    ├── StoreUnavailable   the database could not be asked, or did not answer in time
    │   ├── StoreFull      it has run out of space, memory or connections
    │   └── TableIsBusy    a table that is to be changed is in use
    ├── AlreadyThere       another call has added a job of this id meanwhile
    └── LeadershipLost     another controller leads: nothing was written
"""

from __future__ import annotations

from shared.errors import FumaroleError


class StoreError(FumaroleError):
    """The store did not do what was asked of it."""


class StoreUnavailable(StoreError):
    """The database could not be asked; in a writing transaction nothing was written."""


class StoreFull(StoreUnavailable):
    """The database has run out of space, memory or connections; smaller writes may succeed."""


class TableIsBusy(StoreUnavailable):
    """A table that a migration changes is in use; it is tried again."""


class AlreadyThere(StoreError):
    """A job of this id is there: it was added since this transaction looked."""


class LeadershipLost(StoreError):
    """Another controller leads by now; the transaction was rolled back."""
