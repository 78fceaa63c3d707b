"""Scripts, styles and icons: loads the built files, and writes the HTML that refers to them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload

from shared.errors import SettingsError

BUILD_FOLDER: Final = Path(__file__).resolve().parent.parent / "web" / "build"
STATIC_PREFIX: Final = "/.fumarole/static/"
REFUSALS_SCRIPTS: Final = ("starting.js", "reopen.js", "retry.js", "signed-out.js", "soon.js")
_TYPES: Final[Mapping[str, str]] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


PORTION_BYTES: Final = 1 << 15


class PortionedPayload(BytesPayload):
    """A body that is written in portions, as fast as the browser reads.

    Over plain TCP all connections share the bytes of a file. TLS would encrypt the whole file at
    once, and keep half a MiB for each client that reads nothing.
    """

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body."""
        body = memoryview(self._value)
        for at in range(0, len(body), PORTION_BYTES):
            await writer.write(body[at : at + PORTION_BYTES])
            await writer.drain()


@dataclass(frozen=True, slots=True)
class Asset:
    """A built file; its name holds its hash, so its content never changes.

    ``compressed`` is the body in gzip, or None if that saves less than 10 %. Compression matters
    since each session is an origin of its own, for which the browser loads all files again.
    """

    content_type: str
    body: bytes
    compressed: bytes | None


class Assets:
    """The built files, by source name and by served name."""

    def __init__(self, manifest: Mapping[str, str], files: Mapping[str, Asset]) -> None:
        self._manifest = dict(manifest)
        self._files = dict(files)

    def url(self, name: str) -> str:
        """Return the URL path of the source file *name*."""
        return STATIC_PREFIX + self._manifest[name]

    def text(self, name: str) -> str:
        """Return the built content of the source file *name*, for pages that embed it."""
        return self._files[self._manifest[name]].body.decode()

    def find(self, hashed_name: str) -> Asset | None:
        """Return the file served as *hashed_name*; looks in memory only, never on the disk."""
        return self._files.get(hashed_name)


def load_assets(folder: Path = BUILD_FOLDER) -> Assets:
    """Return the files built into *folder*.

    Raises:
        SettingsError: If a file is missing.
    """
    try:
        manifest: dict[str, str] = json.loads((folder / "manifest.json").read_text("utf-8"))
        files = {
            hashed: _asset(_TYPES[Path(hashed).suffix], (folder / hashed).read_bytes())
            for hashed in manifest.values()
        }
    except (OSError, ValueError, KeyError) as error:
        raise SettingsError(
            [
                "the pages' assets are not built: run `make install`, or "
                f"`python gateway/web/build.py` ({type(error).__name__})"
            ]
        ) from error
    return Assets(manifest, files)


def _asset(content_type: str, body: bytes) -> Asset:
    compressed = gzip.compress(body, mtime=0)
    worth = len(compressed) < len(body) * 0.9
    return Asset(content_type, body, compressed if worth else None)


class Linked:
    """Writes references to files that the page's own host serves."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    def style(self, name: str) -> str:
        """Return a link to the style *name*."""
        return f'<link rel="stylesheet" href="{self._assets.url(name)}">'

    def script(self, name: str) -> str:
        """Return a reference to the script *name*."""
        return f'<script type="module" src="{self._assets.url(name)}"></script>'

    def icon(self) -> str:
        """Return the URL path of the icon."""
        return self._assets.url("icon.svg")


class Inside:
    """Embeds files in the page, whose host may serve no files: for refusals and the open page.

    A sandboxed frame gets no files of its host, so that the open page could not say what is wrong.
    On a public host the gateway serves no files of its own. A client with too many connections or
    too large cookies would be refused the style as well. The policy names the embedded files by
    their hashes (Content Security Policy Level 3, section 2.3.1), so nothing else runs.
    """

    def __init__(self, assets: Assets, scripts: Iterable[str] = REFUSALS_SCRIPTS) -> None:
        self._assets = assets
        self.styles: Final = self._hash_of("pages.css")
        self.scripts: Final = " ".join(map(self._hash_of, scripts))

    def style(self, name: str) -> str:
        """Return the style *name* itself."""
        return f"<style>{self._assets.text(name)}</style>"

    def script(self, name: str) -> str:
        """Return the script *name* itself."""
        return f'<script type="module">{self._assets.text(name)}</script>'

    def icon(self) -> str:
        """Return the icon as a data URL."""
        encoded = base64.b64encode(self._assets.text("icon.svg").encode()).decode()
        return f"data:image/svg+xml;base64,{encoded}"

    def _hash_of(self, name: str) -> str:
        digest = hashlib.sha256(self._assets.text(name).encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"


Parts: TypeAlias = Linked | Inside
