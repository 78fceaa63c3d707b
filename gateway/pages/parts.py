"""How a page comes by its style, script and icon: from this host, or inside itself."""

from __future__ import annotations

import base64
import hashlib
from typing import Final, Protocol

from gateway.pages.assets import Assets

REFUSALS_SCRIPTS: Final = ("starting.js", "retry.js", "soon.js")


class Parts(Protocol):
    """Writes the markup of what belongs to a page, by the names of its sources."""

    def style(self, name: str) -> str:
        """Return the element of a style sheet."""
        ...

    def script(self, name: str) -> str:
        """Return the element of a script."""
        ...

    def icon(self) -> str:
        """Return the address of the icon."""
        ...


class Linked:
    """Parts that the page's own host serves."""

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
