"""Public keys from a JSON Web Key Set at an https URL or in a file, refreshed regularly.

The last good set is kept while the source fails. An unknown ``kid`` causes a refresh, at most every
ten seconds, so that keys can be rotated without a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp

from shared.connector import Connector
from shared.errors import BadKeySet
from shared.jose.jws import KeySet, read_key_set
from shared.settings import Environment, web_url
from shared.tls import make_client_tls

REFRESH_SECONDS: Final = 300.0
UNKNOWN_KID_SECONDS: Final = 10.0
FETCH_SECONDS: Final = 5.0
MAX_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)


class KeySource:
    """The keys of one issuer.

    Run :meth:`keep_fresh` in a task, and call :meth:`keys_for` before verifying a token.

    Args:
        source: An https URL (http on loopback only) or the path of a file.
    """

    def __init__(self, source: str, *, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._refreshing: asyncio.Task[None] | None = None
        self._loaded_at = -REFRESH_SECONDS
        self.keys = KeySet()

    async def keys_for(self, kid: str) -> KeySet:
        """Return the keys, after a refresh if *kid* is not among them."""
        if kid not in self.keys and (self._refreshing is not None or self._may_refresh()):
            # Other callers wait for the same refresh, so a cancelled caller must not cancel it.
            await asyncio.shield(self._refresh())
        return self.keys

    def _refresh(self) -> asyncio.Task[None]:
        """Return the task of the refresh under way, or of a new one; it has its own deadline."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._load())
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    def _refreshed(self, _task: asyncio.Task[None]) -> None:
        self._refreshing = None

    def _may_refresh(self) -> bool:
        return self._clock() - self._loaded_at >= UNKNOWN_KID_SECONDS

    async def keep_fresh(self) -> None:
        """Refresh now and every 300 s, or every 10 s while there is no key; never returns."""
        while True:
            await self._refresh()
            await asyncio.sleep(REFRESH_SECONDS if self.keys else UNKNOWN_KID_SECONDS)

    async def _load(self) -> None:
        self._loaded_at = self._clock()
        try:
            keys = read_key_set(await self._fetch())
        except (BadKeySet, OSError, ValueError, TimeoutError, aiohttp.ClientError) as error:
            text = str(error) if isinstance(error, BadKeySet | ValueError) else type(error).__name__
            log.warning("cannot load the key set, keeping the last good one: %s", text)
            return
        for problem in keys.problems if keys.keys() != self.keys.keys() else ():
            log.warning("ignored a key in the key set: %s", problem)
        self.keys = keys

    async def _fetch(self) -> bytes:
        if "://" not in self._source:
            return await asyncio.to_thread(_read, Path(self._source))
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        tls = await asyncio.to_thread(make_client_tls)
        async with (
            aiohttp.ClientSession(
                connector=Connector(ssl=tls), timeout=timeout, trust_env=False
            ) as session,
            session.get(web_url(self._source).geturl(), allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(f"the source responded with status {response.status}")
            return await _read_bounded(response.content)


async def _read_bounded(content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    async for piece in content.iter_any():
        data += piece
        if len(data) > MAX_BYTES:
            raise ValueError("the key set is larger than 1 MiB")
    return bytes(data)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("the key set is larger than 1 MiB")
    return data


def key_source(raw: str) -> str:
    """Return *raw* if it is a path or a valid URL of a key set (a parser for settings).

    Raises:
        ValueError: For a URL that is not https, or http to another machine.
        OSError: For a path that cannot be looked up, unlike that of a missing file.
    """
    if "://" in raw:
        web_url(raw)
    else:
        Path(raw).is_file()
    return raw


def read_key_source(environment: Environment, name: str, *, needed: bool = True) -> str:
    """Return the key source in the setting *name*, or ""; warn if it is a file without keys.

    Such a file is no error, since the source is read again; until then no token verifies.
    """
    read = environment.required if needed else environment.value
    source = read(name, key_source, "")
    if not source or "://" in source:
        return source
    if not Path(source).is_file():
        environment.warning(name, f"names no file: no token verifies until {source} exists")
        return source
    try:
        read_key_set(_read(Path(source)))
    except (BadKeySet, OSError, ValueError) as error:
        environment.warning(name, f"holds no key, so no token verifies: {error}")
    return source
