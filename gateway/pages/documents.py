"""The HTML of every page: one shell, and a card or a screen inside it.

Pure functions of their arguments; whatever comes from elsewhere is escaped here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, Literal, TypedDict

from gateway.pages import shell_parts as shell
from gateway.pages.assets import Parts
from gateway.pages.texts import Texts

VARY: Final = "Accept, Accept-Language"
_NOTHING: Final[Mapping[str, str]] = {}
_SAYS: Final[Mapping[str, Sequence[str]]] = {
    "open.js": ("open",),
    "starting.js": ("starting",),
    "retry.js": ("retry",),
    "soon.js": ("soon",),
    "terminal.js": ("link", "terminal", "ends"),
    "desktop.js": ("link", "desktop", "ends"),
    "frame.js": ("frame",),
}
"""Which texts a script is given, in the page that it stands in: the tables ``scripts.*``."""


def page_headers(
    frame_ancestors: str,
    *,
    sameorigin_referrer: bool = False,
    scripts: str = "'self'",
    styles: str = "'self'",
    framing: bool = False,
) -> dict[str, str]:
    """Return what every page of ours is sent with; *scripts* and *styles* are what it may use.

    The page that posts a token needs its origin told to its own server: under ``no-referrer``
    browsers send ``Origin: null``. One that is *framing* shows the app of its own origin, whose
    pop-ups (a sign-in, say) go on knowing who opened them.
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
        # Siblings are one site: without this their pages may share a process with ours.
        "Origin-Agent-Cluster": "?1",
        "Cache-Control": "no-store",
        "Vary": VARY,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A page with one message.

    ``status`` is read out when it changes; ``advice`` says what to do next; ``actions`` is
    markup; ``detail`` is small print, in lines, shown when it is asked for. With ``steps`` the
    script shows how far something has come.
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
    """When a session (or the access to it) ends, and from when on its user is told.

    All times are unix seconds; ``now`` is the gateway's clock, since browsers' may be wrong.
    """

    of: Literal["session", "access"]
    at: float
    told_from: float
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the page of a desktop or terminal is told of its session.

    ``mode`` and ``clipboard`` are the grant's and the route's. ``end`` is None where nobody is told
    of it; ``job_url`` and ``home`` are where more time is to be had: for the session, and for the
    access to it.
    """

    title: str
    mode: str
    clipboard: str = "both"
    end: EndNotice | None = None
    job_url: str | None = None
    home: str | None = None


class Documents:
    """Writes pages that are made of *parts*."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def card(self, card: Card, texts: Texts) -> str:
        """Return a page with one message in its middle."""
        progress = '<div class="bar-of-progress" role="presentation"></div>' if card.busy else ""
        advice = f'<p class="next">{escape(card.advice)}</p>' if card.advice else ""
        actions = f'<div class="actions">{card.actions}</div>' if card.actions else ""
        lines = "".join(f"<p>{escape(line)}</p>" for line in card.detail.splitlines())
        summary = f"<summary>{escape(texts('page.details'))}</summary>"
        detail = f'<details class="detail">{summary}{lines}</details>' if lines else ""
        steps = '<ol id="steps" class="steps" hidden></ol>' if card.steps else ""
        brand = escape(texts("page.brand"))
        body = (
            '<main class="centre"><section class="card">'
            f'<div class="brand">{self._icon()}<span>{brand}</span></div>'
            f"<h1>{escape(card.title)}</h1>"
            f'<p id="status" role="status" aria-live="polite">{escape(card.status)}</p>'
            f'<p id="stuck" class="stuck" hidden></p>'
            f"{progress}{steps}{advice}{actions}{detail}</section></main>"
        )
        return self._shell(card.title, body, texts, script=card.script, data=card.data)

    def terminal(self, about: Screen, texts: Texts) -> str:
        """Return the page of a terminal."""
        controls = about.mode == "control"
        screen = (
            '<div class="screen"><div class="terminal-screen"></div>'
            f"{shell.search(texts)}{shell.revoked(texts, controls=controls)}"
            f"{shell.paste_question(texts)}"
        )
        below = shell.key_row(texts) if controls else ""
        tools = shell.tools(texts, controls=controls)
        return self._screen("terminal", about, texts, tools, screen, below=below)

    def desktop(self, about: Screen, texts: Texts) -> str:
        """Return the page of a desktop."""

        def say(name: str) -> str:
            return escape(texts(f"desktop.{name}"))

        qualities = "".join(
            f'<option value="{name.removeprefix("quality_")}">{say(name)}</option>'
            for name in ("quality_best", "quality_balanced", "quality_small")
        )
        tools = (
            f'<span id="round-trip" title="{say("round_trip")}"></span>'
            f'<button id="scale" type="button" aria-pressed="true">{say("fit")}</button>'
            f'<button id="copy" type="button" disabled>{say("copy")}</button>'
            f'<button id="paste" type="button" data-live>{say("paste")}</button>'
            f'<button id="keys" type="button" data-live>{say("keys")}</button>'
            f'<button id="keyboard" type="button" data-live aria-pressed="false" hidden>'
            f"{say('keyboard')}</button>"
            f'<select id="quality" aria-label="{say("quality")}" title="{say("quality")}">'
            f"{qualities}</select>"
            f'<button id="full" type="button">{say("full")}</button>'
        )
        # No field has a name, and nothing is sent by the form: browsers have nothing to remember.
        form = (
            '<form id="password-form" class="notice" autocomplete="off" hidden><div class="card">'
            f"<h2>{say('password_title')}</h2>"
            '<p id="password-problem" class="problem" role="alert" hidden></p>'
            f'<p hidden><label for="username">{say("user_name")}</label><input id="username" '
            'autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="255"></p>'
            f'<p><label for="password">{say("password")}</label><input id="password" '
            'type="password" autocomplete="off" maxlength="255" required '
            'aria-describedby="password-problem"></p>'
            f'<p class="next">{say("password_advice")}</p>'
            f'<div class="actions"><button class="first">{say("connect")}</button></div>'
            "</div></form>"
        )
        # What a touch keyboard writes into.
        field = (
            f'<textarea id="typed" tabindex="-1" aria-label="{say("keyboard")}" autocomplete="off" '
            'autocapitalize="none" autocorrect="off" spellcheck="false"></textarea>'
        )
        screen = f'<div class="screen"><div class="desktop-screen"></div>{field}{form}'
        return self._screen("vnc", about, texts, tools, screen)

    def frame(self, title: str, texts: Texts, *, job_url: str | None) -> str:
        """Return the page that shows a web app beneath a bar."""

        def say(name: str) -> str:
            return escape(texts(f"frame.{name}"))

        job = link_action(job_url, texts("frame.job"), tab=True) if job_url else ""
        body = (
            f'<header class="bar">{self._icon()}<h1>{escape(title)}</h1>'
            '<div class="state" role="status" aria-live="polite" data-state="open"><span></span>'
            '</div><div class="tools">'
            f'<button id="reload" class="first" type="button" hidden>{say("reload")}</button>'
            f'{job}<a id="alone" class="button" href="/" target="_top">{say("alone")}</a>'
            f'{self._sign_out(texts)}</div></header><main class="screen-main">'
            f'<iframe title="{escape(title)}" allowfullscreen></iframe>'
            f"<noscript><p>{escape(texts('page.needs_javascript'))}</p></noscript></main>"
        )
        data = {"title": title}
        return self._shell(
            title, body, texts, script="frame.js", data=data, classes="screen-page frame-page"
        )

    def _sign_out(self, texts: Texts) -> str:
        text = escape(texts("page.sign_out"))
        return f'<a class="button" href="/.fumarole/sign-out" target="_top">{text}</a>'

    def _screen(
        self,
        kind: Literal["terminal", "vnc"],
        about: Screen,
        texts: Texts,
        tools: str,
        screen: str,
        *,
        below: str = "",
    ) -> str:
        def say(name: str) -> str:
            return escape(texts(f"page.{name}"))

        title = about.title
        badge = f'<span class="badge">{say("view_only")}</span>' if about.mode == "view" else ""
        what = texts(f"kinds.{kind}")
        # Tab leads out for those who only look on.
        takes = f'<p id="way-out" class="unseen">{say("way_out")}</p>'
        way_out = takes if about.mode == "control" else ""
        body = (
            f'<header class="bar">{self._icon()}<h1>{escape(title)}</h1>{badge}'
            # Of the two only the one that changes is read out.
            '<div class="state" role="status" aria-live="polite" aria-atomic="false" '
            f'data-state="busy"><span>{say("connecting")}</span><span id="ends"></span></div>'
            f"{_ways_out(about, texts)}"
            f'<div class="tools">{tools}{self._sign_out(texts)}</div>'
            f'</header><main aria-label="{escape(what)}" class="screen-main">{screen}'
            f"{way_out}"
            '<div id="notice" class="notice"><section class="card">'
            f'<h2 id="notice-title">{say("connecting")}</h2>'
            f"<p></p><noscript><p>{say('needs_javascript')}</p></noscript>"
            '<div class="actions" hidden><button class="first" type="button" '
            f'aria-describedby="notice-title">{say("try_now")}</button>'
            f"{_ways_on(about, texts)}</div></section></div></div></main>{below}"
        )
        whole = title if title == what else texts("page.screen", app=title, kind=what)
        return self._shell(
            whole,
            body,
            texts,
            script="terminal.js" if kind == "terminal" else "desktop.js",
            style="terminal.css" if kind == "terminal" else None,
            data={
                "mode": about.mode,
                "clipboard": about.clipboard,
                "title": whole,
                "end": json.dumps(about.end),
            },
            classes="screen-page",
        )

    def _shell(
        self,
        title: str,
        body: str,
        texts: Texts,
        *,
        script: str | None,
        data: Mapping[str, str],
        style: str | None = None,
        classes: str = "",
    ) -> str:
        styles = ["pages.css", style] if style else ["pages.css"]
        links = "".join(map(self._parts.style, styles))
        code = self._parts.script(script) if script else ""
        if script:
            said = texts.for_scripts(_SAYS[script])
            data = {**data, "texts": json.dumps(said, ensure_ascii=False)}
        attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
        return (
            f'<!doctype html><html lang="{texts.language}"><head><meta charset="utf-8">'
            f"<title>{escape(title)}</title>"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<link rel="icon" type="image/svg+xml" href="{self._parts.icon()}">'
            f"{links}{code}</head>"
            f'<body class="{classes}"{attributes}>{body}</body></html>'
        )

    def _icon(self) -> str:
        return f'<img src="{self._parts.icon()}" alt="" width="24" height="24">'


def _ways_out(about: Screen, texts: Texts) -> str:
    """Return what stands beside the news that a session ends soon: how soon, and the ways out."""
    ways = (("session", about.job_url, "extend"), ("access", about.home, "home"))
    links = "".join(
        f'<span data-of="{of}">{link_action(url, texts(f"actions.{name}"), tab=True)}</span>'
        for of, url, name in ways
        if url is not None
    )
    return f'<div id="ends-more" class="ends" hidden><span></span>{links}</div>'


def _ways_on(about: Screen, texts: Texts) -> str:
    """Return where to go once the session, or the access to it, has ended."""
    ways = (("session", about.job_url, "job"), ("access", about.home, "home"))
    links = (
        (of, link_action(url, texts(f"actions.{name}"), first=True))
        for of, url, name in ways
        if url is not None
    )
    return "".join(f'<span data-of="{of}" hidden>{link}</span>' for of, link in links)


def link_action(url: str, text: str, *, first: bool = False, tab: bool = False) -> str:
    """Return a link that looks like a button: the *first* to think of, or into a new *tab*.

    An empty *url* leads to the page's own address.
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
