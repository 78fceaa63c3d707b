"""The HTML of every page: a shell with a card or a screen inside, from ``templates/``.

The functions are pure. All values are escaped here and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final, Literal, TypedDict

from gateway.pages.assets import Parts
from gateway.pages.texts import Texts

VARY: Final = "Accept, Accept-Language"
_NOTHING: Final[Mapping[str, str]] = {}
_TEXT_TABLES: Final[Mapping[str, Sequence[str]]] = {
    "open.js": ("open",),
    "reopen.js": (),
    "signed-out.js": (),
    "starting.js": ("starting",),
    "retry.js": ("retry",),
    "soon.js": ("soon",),
    "terminal.js": ("link", "terminal", "ends"),
    "desktop.js": ("link", "desktop", "ends"),
    "frame.js": ("frame",),
}
"""The tables ``scripts.*`` of the texts that the page passes to each script."""
_TRY_AGAIN: Final = '<noscript><meta http-equiv="refresh" content="5"></noscript>'
_WITHOUT_SCRIPTS: Final = {"starting.js": _TRY_AGAIN, "retry.js": _TRY_AGAIN}
"""The markup that replaces a script in browsers without JavaScript."""


class Markup(str):
    """Text that is HTML already and is not escaped."""

    __slots__ = ()


class _Escaped:
    """The texts of a language, escaped, for templates: ``{say[page.details]}``."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def __getitem__(self, name: str) -> str:
        return escape(self._texts(name))


def _read_template(path: Path) -> str:
    """Return the template in *path* without comments and indentation."""
    bare = re.sub(r"<!--.*?-->", "", path.read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", " ", re.sub(r"(^|(?<=[>}]))\s*\n\s*", "", bare))


_FOLDER: Final = Path(__file__).resolve().parent / "templates"
_TEMPLATES: Final = {path.stem: _read_template(path) for path in _FOLDER.glob("*.html")}
"""Loaded at import, as parts of the program; ``{name}`` is replaced by a value."""
_NO_MARKUP: Final = Markup("")


def page_headers(
    frame_ancestors: str,
    *,
    sameorigin_referrer: bool = False,
    scripts: str = "'self'",
    styles: str = "'self'",
    framing: bool = False,
) -> dict[str, str]:
    """Return the header fields of a page.

    Args:
        frame_ancestors: The policy directive that says which sites may frame the page.
        sameorigin_referrer: For pages that post a form to their own host. Under ``no-referrer``
            browsers send ``Origin: null``, which the gateway refuses.
        scripts: Script sources that the policy allows.
        styles: Style sources that the policy allows.
        framing: For the page that frames the app of its own origin. Pop-ups of the app, such as a
            sign-in, keep the reference to their opener.
    """
    frames = "frame-src 'self'; " if framing else ""
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data:; "
        f"connect-src 'self'; {frames}form-action 'self'; base-uri 'none'; {frame_ancestors}"
    )
    return {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "same-origin" if sameorigin_referrer else "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin-allow-popups" if framing else "same-origin",
        # Sessions' hosts are one site. Without this their pages may share a process with this one.
        "Origin-Agent-Cluster": "?1",
        "Cache-Control": "no-store",
        "Vary": VARY,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A page with one message.

    - ``status``: announced by screen readers when it changes.
    - ``advice``: what the user can do next.
    - ``actions``: markup of buttons and links.
    - ``detail``: lines of small print, folded.
    - ``steps``: the page has a list in which the script shows progress.
    """

    title: str
    status: str
    advice: str = ""
    actions: str = ""
    detail: str = ""
    script: str | None = None
    busy: bool = False
    steps: bool = False
    data: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


class EndNotice(TypedDict):
    """When a session, or the access to it, ends, and from when on the page shows it.

    Its keys are a part of ``/.fumarole/state`` (docs/pages.md), which the pages' scripts read. All
    times are unix seconds; ``now`` is the gateway's clock, since the browser's may be wrong.
    """

    of: Literal["session", "access"]
    at: float
    told_from: float
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The parameters of a desktop or terminal page.

    ``mode`` is the grant's and ``clipboard`` the route's. ``end`` is None if the page shows no end
    notice. The session can be extended at ``job_url``, the access to it at ``home``. A new tab has
    no cookie if the session was ``framed`` by another site.
    """

    title: str
    mode: str
    clipboard: str = "both"
    end: EndNotice | None = None
    job_url: str | None = None
    home: str | None = None
    framed: bool = False


class Documents:
    """Writes pages, with scripts and styles by *parts*."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def card(self, card: Card, texts: Texts) -> str:
        """Return a page with one message."""
        lines = "".join(f"<p>{escape(line)}</p>" for line in card.detail.splitlines())
        summary = f"<summary>{escape(texts('page.details'))}</summary>"
        body = self._fill(
            "card",
            texts,
            title=card.title,
            status=card.status,
            progress=_if(card.busy, '<div class="bar-of-progress" role="presentation"></div>'),
            steps=_if(card.steps, '<ol id="steps" class="steps" hidden></ol>'),
            advice=_if(card.advice, f'<p class="next">{escape(card.advice)}</p>'),
            actions=_if(card.actions, f'<div class="actions">{card.actions}</div>'),
            detail=_if(lines, f'<details class="detail">{summary}{lines}</details>'),
        )
        return self._page(card.title, body, texts, script=card.script, data=card.data)

    def terminal(self, about: Screen, texts: Texts) -> str:
        """Return the page of a terminal."""
        controls = about.mode == "control"
        new_shell = escape(texts("terminal.new_shell"))
        tab = "" if about.framed else ' target="_blank" rel="noopener"'
        where = f'data-live href="/?new"{tab}>{new_shell}</a>'
        keys = {f"key_{key.lower()}": texts("terminal.combination", key=key) for key in "CVF"}
        tools = self._fill(
            "terminal_tools",
            texts,
            new_shell_wide=_if(controls, f'<a class="button wide" {where}'),
            new_shell=_if(controls, f'<a class="button" {where}'),
            **keys,
        )
        renew = f'<button id="renew" class="first" type="button">{escape(texts("terminal.renew"))}'
        screen = self._fill("terminal_screen", texts, renew=_if(controls, f"{renew}</button>"))
        below = self._fill("terminal_keys", texts) if controls else _NO_MARKUP
        return self._screen("terminal", about, texts, tools=tools, screen=screen, below=below)

    def desktop(self, about: Screen, texts: Texts) -> str:
        """Return the page of a desktop."""
        tools = self._fill("desktop_tools", texts)
        screen = self._fill("desktop_screen", texts)
        return self._screen("vnc", about, texts, tools=tools, screen=screen)

    def frame(self, title: str, texts: Texts, *, job_url: str | None, notice_seconds: float) -> str:
        """Return the page that shows a web app below a bar.

        The bar warns of the end for the last *notice_seconds* of the session; 0 is never.
        """
        job = link_action(job_url, texts("frame.job"), tab=True) if job_url else ""
        body = self._fill("frame", texts, title=title, job=Markup(job), sign_out=_sign_out(texts))
        classes = "screen-page frame-page"
        data = {"title": title, "notice-seconds": f"{notice_seconds:g}"}
        return self._page(title, body, texts, script="frame.js", data=data, classes=classes)

    def _screen(
        self,
        kind: Literal["terminal", "vnc"],
        about: Screen,
        texts: Texts,
        *,
        tools: Markup,
        screen: Markup,
        below: Markup = _NO_MARKUP,
    ) -> str:
        title, what = about.title, texts(f"kinds.{kind}")
        badge = f'<span class="badge">{escape(texts("page.view_only"))}</span>'
        # In view mode the screen does not take Tab, so that Tab leads out.
        way_out = f'<p id="way-out" class="unseen">{escape(texts("page.way_out"))}</p>'
        body = self._fill(
            "screen",
            texts,
            title=title,
            badge=_if(about.mode == "view", badge),
            ways_out=_ways_out(about, texts),
            tools=tools,
            sign_out=_sign_out(texts),
            what=what,
            screen=screen,
            way_out=_if(about.mode == "control", way_out),
            ways_on=_ways_on(about, texts),
            below=below,
        )
        whole = title if title == what else texts("page.screen", app=title, kind=what)
        data = {"mode": about.mode, "clipboard": about.clipboard, "title": whole}
        return self._page(
            whole,
            body,
            texts,
            script="terminal.js" if kind == "terminal" else "desktop.js",
            style="terminal.css" if kind == "terminal" else None,
            data=data | {"end": json.dumps(about.end)},
            classes="screen-page",
        )

    def _page(
        self,
        title: str,
        body: Markup,
        texts: Texts,
        *,
        script: str | None,
        data: Mapping[str, str],
        style: str | None = None,
        classes: str = "",
    ) -> str:
        styles = ["pages.css", style] if style else ["pages.css"]
        links = "".join(map(self._parts.style, styles))
        if script:
            links += self._parts.script(script) + _WITHOUT_SCRIPTS.get(script, "")
            said = texts.for_scripts(_TEXT_TABLES[script])
            data = {**data, "texts": json.dumps(said, ensure_ascii=False)}
        attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
        return self._fill(
            "page",
            texts,
            language=texts.language,
            title=title,
            icon=Markup(self._parts.icon()),
            links=Markup(links),
            classes=classes,
            attributes=Markup(attributes),
            body=body,
        )

    def _fill(self, name: str, texts: Texts, **values: str) -> Markup:
        """Return the template *name* with *values*; escapes all but :class:`Markup`."""
        icon = f'<img src="{self._parts.icon()}" alt="" width="24" height="24">'
        safe = {
            field: value if isinstance(value, Markup) else escape(value)
            for field, value in values.items()
        }
        filled = {"icon": icon, **safe, "say": _Escaped(texts)}
        return Markup(_TEMPLATES[name].format_map(filled))


def _if(condition: object, markup: str) -> Markup:
    return Markup(markup) if condition else _NO_MARKUP


def _sign_out(texts: Texts) -> Markup:
    text = escape(texts("page.sign_out"))
    return Markup(f'<a class="button" href="/.fumarole/sign-out">{text}</a>')


def _ways_out(about: Screen, texts: Texts) -> Markup:
    """Return the links beside the notice that a session ends soon."""
    ways = (("session", about.job_url, "extend"), ("access", about.home, "home"))
    links = "".join(
        f'<span data-of="{of}">{link_action(url, texts(f"actions.{name}"), tab=True)}</span>'
        for of, url, name in ways
        if url is not None
    )
    return Markup(f'<div id="ends-more" class="ends" hidden><span></span>{links}</div>')


def _ways_on(about: Screen, texts: Texts) -> Markup:
    """Return the links for after the session, or the access to it, has ended."""
    ways = (("session", about.job_url, "job"), ("access", about.home, "home"))
    links = (
        (of, link_action(url, texts(f"actions.{name}"), first=True))
        for of, url, name in ways
        if url is not None
    )
    return Markup("".join(f'<span data-of="{of}" hidden>{link}</span>' for of, link in links))


def link_action(url: str, text: str, *, first: bool = False, tab: bool = False) -> str:
    """Return a link styled as a button; *first* is the main action, *tab* opens a new tab.

    An empty *url* is the page's own address.
    """
    classes = "button first" if first else "button"
    target = ' target="_blank"' if tab else ""
    href = escape(url)
    return f'<a class="{classes}" href="{href}" rel="noreferrer"{target}>{escape(text)}</a>'


def form_action(path: str, fields: Sequence[tuple[str, str]], text: str) -> str:
    """Return a button that posts *fields* to *path* of this host."""
    inputs = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in fields
    )
    return (
        f'<form method="post" action="{escape(path)}">{inputs}'
        f'<button class="first">{escape(text)}</button></form>'
    )
