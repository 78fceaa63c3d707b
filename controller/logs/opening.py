"""Opens the storage of logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controller.logs.s3 import connect_s3
from controller.logs.storage import FolderStorage, LogStorage
from controller.site.log_place import Bucket, LogsPlace


@asynccontextmanager
async def open_storage(place: LogsPlace) -> AsyncIterator[LogStorage | None]:
    """Open the storage at *place*; None if logs are not stored.

    Raises:
        ValueError: If a package that the storage needs is not installed.
    """
    match place:
        case None:
            yield None
        case Path():
            yield FolderStorage(place)
        case Bucket():
            async with connect_s3(place) as storage:
                yield storage
