"""Where public keys come from: a JSON Web Key set at an https URL or in a file, kept fresh.

The last good set is kept while the source is down. A ``kid`` that is not known makes the source
be asked again, at most every ten seconds, so that keys can be rotated without a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp

from shared.errors import BadKeySet
from shared.jose.jws import KeySet, read_key_set
from shared.settings import Environment, web_url

REFRESH_SECONDS: Final = 300.0
UNKNOWN_KID_SECONDS: Final = 10.0
FETCH_SECONDS: Final = 5.0
MAX_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)


class KeySource:
    """The keys of one issuer.

    Run :meth:`keep_fresh` in a task of the owner's; ask :meth:`keys_for` before verifying.

    Args:
        source: An https URL (http on loopback only) or the path of a file.
    """

    def __init__(self, source: str, *, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = -REFRESH_SECONDS
        self.keys = KeySet()

    async def keys_for(self, kid: str) -> KeySet:
        """Return the keys, after asking the source once more if *kid* is not among them."""
        if kid not in self.keys and (self._asking is not None or self._may_ask()):
            # A caller that goes away leaves the others, and the next ten seconds, their answer.
            await asyncio.shield(self._ask())
        return self.keys

    def _ask(self) -> asyncio.Task[None]:
        """Return what asks the source, now or since another call; its own deadline ends it."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._refresh())
            self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, _task: asyncio.Task[None]) -> None:
        self._asking = None

    def _may_ask(self) -> bool:
        return self._clock() - self._asked_at >= UNKNOWN_KID_SECONDS

    async def keep_fresh(self) -> None:
        """Fetch now and every 300 s, and every ten while there is no key; never returns."""
        while True:
            await self._ask()
            await asyncio.sleep(REFRESH_SECONDS if self.keys else UNKNOWN_KID_SECONDS)

    async def _refresh(self) -> None:
        self._asked_at = self._clock()
        try:
            keys = read_key_set(await self._fetch())
        except (BadKeySet, OSError, ValueError, TimeoutError, aiohttp.ClientError) as error:
            text = str(error) if isinstance(error, BadKeySet | ValueError) else type(error).__name__
            log.warning("the key set could not be had, the last good one is kept: %s", text)
            return
        for problem in keys.problems if keys.keys() != self.keys.keys() else ():
            log.warning("a key was left out: %s", problem)
        self.keys = keys

    async def _fetch(self) -> bytes:
        if "://" not in self._source:
            return await asyncio.to_thread(_read, Path(self._source))
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(web_url(self._source).geturl(), allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"the source answered {answer.status}")
            return await _read_bounded(answer.content)


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
    """Return *raw* if it names a key set (a parser for settings): a URL, or a path.

    Raises:
        ValueError: For a URL that is not https, or http elsewhere than on loopback.
    """
    if "://" in raw:
        web_url(raw)
    return raw


def read_key_source(environment: Environment, name: str, *, needed: bool = True) -> str:
    """Return the setting *name*, or nothing; warn of a file that is not there yet.

    It is no mistake: the file is looked for again, and until then no token verifies.
    """
    read = environment.required if needed else environment.value
    source = read(name, key_source, "")
    if source and "://" not in source and not Path(source).is_file():
        environment.warning(name, f"names no file: no token verifies until {source} is there")
    return source
