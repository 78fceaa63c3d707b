"""``/docs``: the API's description as a public page, loaded from this origin alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from controller.api.error_responses import not_found

BUILD_FOLDER: Final = Path(__file__).resolve().parent.parent / "web" / "build"
PUBLIC: Final = frozenset({"/docs", "/docs/", "/docs/openapi.json", "/docs/{file}"})
"""The paths that need no token: they show nothing of jobs, users or secrets."""

# Listed here because the types that Python guesses depend on the system's tables.
_LOADED: Final[Mapping[str, str]] = {
    "docs.js": "text/javascript; charset=utf-8",
    "viewer.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "licences.txt": "text/plain; charset=utf-8",
}
_HEADERS: Final[Mapping[str, str]] = {
    # The viewer's icons are in its style sheet, as data. "Try it out" calls this origin.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FRESH: Final = {**_HEADERS, "Cache-Control": "no-cache"}
_FOR_EVER: Final = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Fumarole controller API</title>
<link rel="icon" href="data:,">
{head}
<body>
<div id="docs"></div>
{body}
"""
_HEAD: Final = """<link rel="stylesheet" href="/docs/{style}">
<script src="/docs/{viewer}" defer></script>
<script src="/docs/{docs}" defer></script>"""
_LINK: Final = '<a href="/docs/openapi.json">openapi.json</a>'
_BODY: Final = f"""<noscript>The description without scripts: {_LINK}</noscript>
<p><a href="/docs/{{licences}}">Licences</a> of what this page uses"""
_NOT_BUILT: Final = f"""<p>This page is not built. Run <code>make install</code>, or
<code>python gateway/web/build.py controller/web</code>, and start the controller again.
<p>The description itself is there: {_LINK}"""


class DocsPage:
    """Serves the page, the files that it loads, and the description.

    The description is made for the first request and kept. Making it takes longer than the rest
    of the API's start, and most processes never need it.

    Args:
        describe: Returns the description as JSON. It is called in a thread.
        folder: The build folder of the page's files.
    """

    def __init__(self, describe: Callable[[], bytes], folder: Path = BUILD_FOLDER) -> None:
        self._describe = describe
        self._describing = asyncio.Lock()
        self._description: bytes | None = None
        self._files = _built(folder)

    @property
    def is_built(self) -> bool:
        """Whether every file that the page loads was built."""
        return bool(self._files)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, which are those of :data:`PUBLIC`."""
        return [
            web.get("/docs", self.page),
            web.get("/docs/", self.page),
            web.get("/docs/openapi.json", self.description),
            web.get("/docs/{file}", self.file),
        ]

    async def page(self, _request: web.Request) -> web.Response:
        """Return the page, or 503 with the command that builds it."""
        if not self.is_built:
            text, status = _PAGE.format(head="", body=_NOT_BUILT), 503
        else:
            names = {name.partition(".")[0]: path.name for name, path in self._files.items()}
            head, body = _HEAD.format(**names), _BODY.format(**names)
            text, status = _PAGE.format(head=head, body=body), 200
        return web.Response(text=text, status=status, content_type="text/html", headers=_FRESH)

    async def description(self, _request: web.Request) -> web.Response:
        """Return the description as JSON."""
        async with self._describing:
            if self._description is None:
                self._description = await asyncio.to_thread(self._describe)
        return web.Response(
            body=self._description,
            content_type="application/json",
            charset="utf-8",
            headers=_FRESH,
        )

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Return a file of the page. Only names of the manifest are served, never a given path."""
        for name, path in self._files.items():
            if path.name == request.match_info["file"]:
                headers = {**_FOR_EVER, "Content-Type": _LOADED[name]}
                return web.FileResponse(path, headers=headers)
        raise not_found("file")


def _built(folder: Path) -> dict[str, Path]:
    """Return the path of each file by its name in the manifest; empty if one is missing."""
    try:
        manifest: Any = json.loads((folder / "manifest.json").read_text("utf-8"))
        files = {name: folder / Path(manifest[name]).name for name in _LOADED}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return files if all(path.is_file() for path in files.values()) else {}
