"""Scripts, styles and icons: built beforehand, read once, and how a page comes by each of them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from shared.errors import SettingsError

BUILD_FOLDER: Final = Path(__file__).resolve().parent.parent / "web" / "build"
STATIC_PREFIX: Final = "/.fumarole/static/"
REFUSALS_SCRIPTS: Final = ("starting.js", "retry.js", "soon.js")
_TYPES: Final[Mapping[str, str]] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served; its name holds its hash, so it never changes.

    ``compressed`` is the body in gzip, None where that is hardly smaller. Every session is an
    origin of its own, for which its browser loads everything anew.
    """

    content_type: str
    body: bytes
    compressed: bytes | None


class Assets:
    """The built files, by the names that pages know and by those that browsers ask for."""

    def __init__(self, manifest: Mapping[str, str], files: Mapping[str, Asset]) -> None:
        self._manifest = dict(manifest)
        self._files = dict(files)

    def url(self, name: str) -> str:
        """Return the path under which the file *name* of the sources is served."""
        return STATIC_PREFIX + self._manifest[name]

    def text(self, name: str) -> str:
        """Return the file *name* of the sources, for a page that holds it."""
        return self._files[self._manifest[name]].body.decode()

    def find(self, hashed_name: str) -> Asset | None:
        """Return the file that browsers ask for as *hashed_name*; no name is ever opened."""
        return self._files.get(hashed_name)


def load_assets(folder: Path = BUILD_FOLDER) -> Assets:
    """Return what was built into *folder*.

    Raises:
        SettingsError: If nothing, or not everything, was.
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
    """Parts that the page's own host serves, by the names of their sources."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    def style(self, name: str) -> str:
        """Return a link to it."""
        return f'<link rel="stylesheet" href="{self._assets.url(name)}">'

    def script(self, name: str) -> str:
        """Return a reference to it."""
        return f'<script type="module" src="{self._assets.url(name)}"></script>'

    def icon(self) -> str:
        """Return its path."""
        return self._assets.url("icon.svg")


class Inside:
    """Parts that stand in the page, for refusals: they may be all that their host serves.

    Under a public link nothing of ours is served, and whoever has too many connections, or cookies
    that are too large, would be refused the style as well. What stands inside is named by its hash
    (Content Security Policy Level 3, section 2.3.1), so nothing else runs.
    """

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self.styles: Final = self._hash_of("pages.css")
        self.scripts: Final = " ".join(map(self._hash_of, REFUSALS_SCRIPTS))

    def style(self, name: str) -> str:
        """Return the whole of it."""
        return f"<style>{self._assets.text(name)}</style>"

    def script(self, name: str) -> str:
        """Return the whole of it."""
        return f'<script type="module">{self._assets.text(name)}</script>'

    def icon(self) -> str:
        """Return the whole of it."""
        encoded = base64.b64encode(self._assets.text("icon.svg").encode()).decode()
        return f"data:image/svg+xml;base64,{encoded}"

    def _hash_of(self, name: str) -> str:
        digest = hashlib.sha256(self._assets.text(name).encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"


Parts: TypeAlias = Linked | Inside
