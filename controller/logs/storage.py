"""Where logs are kept: objects by name, in a folder or in S3."""

from __future__ import annotations

import re
from typing import Final, Protocol

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
        ...

    async def get(self, name: str) -> bytes:
        """Return an object.

        Raises:
            Missing: If there is none.
            StorageUnavailable: If it cannot be asked.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove an object; none is fine.

        Raises:
            StorageUnavailable: If it could not.
        """
        ...

    async def remove_all(self, key: str) -> None:
        """Remove every object of a log.

        Raises:
            StorageUnavailable: If it could not; some may be gone.
        """
        ...


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
