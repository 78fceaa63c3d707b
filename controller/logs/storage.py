"""Where logs are kept: objects by name, in a folder or in S3."""

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
"""Of one call of a storage, all its tries included."""

_NAME: Final = re.compile(r"[0-9a-f]{32}/[0-9a-f]{1,16}-[0-9]{1,9}", re.ASCII)
_KEY: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


class StorageUnavailable(FumaroleError):
    """The storage does not take, or does not give, anything now."""


class Missing(FumaroleError):
    """The storage has no such object."""


class LogStorage(Protocol):
    """Keeps objects.

    Names are ``<key>/<term>-<number>``, made by us alone: nothing of a job or of its owner is part
    of one. An object is never changed, and is there whole or not at all.
    """

    async def put(self, name: str, content: bytes) -> None:
        """Keep *content*.

        Raises:
            StorageUnavailable: If it could not.
        """

    async def get(self, name: str) -> bytes:
        """Return an object.

        Raises:
            Missing: If there is none.
            StorageUnavailable: If it cannot be asked.
        """

    async def remove(self, name: str) -> None:
        """Remove an object; none is fine.

        Raises:
            StorageUnavailable: If it could not.
        """

    async def remove_all(self, key: str) -> None:
        """Remove every object of a log.

        Raises:
            StorageUnavailable: If it could not; some may be gone.
        """


def check_name(name: str) -> str:
    """Return *name*.

    Raises:
        ValueError: If it is not one of ours.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("not the name of a log's segment")
    return name


def check_key(key: str) -> str:
    """Return *key*.

    Raises:
        ValueError: If it is not one of ours.
    """
    if not _KEY.fullmatch(key):
        raise ValueError("not the key of a log")
    return key


T = TypeVar("T")

_AT_ONCE: Final = 4


class FolderStorage:
    """Keeps each object as a file of its own, below *root*, which must be there.

    A folder that has gone, such as a volume that is not mounted, is not made again: what would be
    written into its place is no part of it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        # A file system that hangs takes these threads, and none of the others'.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="logs")

    async def put(self, name: str, content: bytes) -> None:
        """Keep *content*; after a crash it is there whole or not at all."""
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
        """Remove an object; none is fine."""
        path = self._root / check_name(name)
        await self._call(lambda: path.unlink(missing_ok=True))

    async def remove_all(self, key: str) -> None:
        """Remove every object of a log."""
        path = self._root / check_key(key)
        await self._call(lambda: _remove(self._root, path))

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise StorageUnavailable("the folder of logs does not answer") from error
        except OSError as error:
            why = error.strerror or type(error).__name__  # without the path
            raise StorageUnavailable(f"the folder of logs: {why}") from error


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
        passing.unlink(missing_ok=True)  # a full disk must not stay full of halves
        raise


def _remove(root: Path, path: Path) -> None:
    if not root.is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
    if path.is_dir():
        shutil.rmtree(path)
