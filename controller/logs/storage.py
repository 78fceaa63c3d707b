"""The storage of logs: objects by name, in a folder or in S3."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import ENOENT
from pathlib import Path
from typing import Final, Protocol, TypeVar

from shared.errors import FumaroleError

CALL_SECONDS: Final = 20.0
"""Deadline of one call of a storage, including retries."""

_NAME: Final = re.compile(r"[0-9a-f]{32}/[0-9a-f]{1,16}-[0-9]{1,9}", re.ASCII)
_KEY: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


class StorageUnavailable(FumaroleError):
    """The storage cannot be read or written now."""


class Missing(FumaroleError):
    """The object does not exist."""


class LogStorage(Protocol):
    """Stores objects.

    Names are ``<key>/<term>-<number>`` and contain nothing of a job or its owner. An object never
    changes, and exists completely or not at all.
    """

    async def put(self, name: str, content: bytes) -> None:
        """Store *content*.

        Raises:
            StorageUnavailable: If it cannot be stored.
        """

    async def get(self, name: str) -> bytes:
        """Return an object.

        Raises:
            Missing: If it does not exist.
            StorageUnavailable: If the storage cannot be read.
        """

    async def remove(self, name: str) -> None:
        """Remove an object if it exists.

        Raises:
            StorageUnavailable: If it cannot be removed.
        """

    async def remove_all(self, key: str) -> None:
        """Remove all objects of a log.

        Raises:
            StorageUnavailable: If one cannot be removed; others may be gone.
        """


def check_name(name: str) -> str:
    """Return *name*.

    Raises:
        ValueError: If it is not the name of a segment.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("not the name of a log's segment")
    return name


def check_key(key: str) -> str:
    """Return *key*.

    Raises:
        ValueError: If it is not the key of a log.
    """
    if not _KEY.fullmatch(key):
        raise ValueError("not the key of a log")
    return key


T = TypeVar("T")

_AT_ONCE: Final = 4


class FolderStorage:
    """Stores each object as a file below *root*, which must exist.

    A folder that disappears, such as a volume that is not mounted, is not created again: files in
    its place would not be part of it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        # Threads of its own: a file system that hangs blocks only these.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="logs")

    async def put(self, name: str, content: bytes) -> None:
        """Store *content*; after a crash it exists completely or not at all."""
        path = self._root / check_name(name)
        await self._call(lambda: _write(self._root, path, content))

    async def get(self, name: str) -> bytes:
        """Return an object."""
        path = self._root / check_name(name)
        try:
            return await self._call(path.read_bytes)
        except StorageUnavailable as error:
            if isinstance(error.__cause__, FileNotFoundError) and self._root.is_dir():
                raise Missing(name) from error
            raise

    async def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        path = self._root / check_name(name)
        await self._call(lambda: path.unlink(missing_ok=True))

    async def remove_all(self, key: str) -> None:
        """Remove all objects of a log."""
        path = self._root / check_key(key)
        await self._call(lambda: _remove(self._root, path))

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise StorageUnavailable("the log folder does not respond") from error
        except OSError as error:
            why = error.strerror or type(error).__name__  # without the path
            raise StorageUnavailable(f"the log folder: {why}") from error


def _write(root: Path, path: Path, content: bytes) -> None:
    if not root.is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    passing = path.with_suffix(".new")
    descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        passing.replace(path)
    except OSError:
        passing.unlink(missing_ok=True)  # incomplete files must not fill the disk
        raise


def _remove(root: Path, path: Path) -> None:
    if not root.is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
    if path.is_dir():
        shutil.rmtree(path)
