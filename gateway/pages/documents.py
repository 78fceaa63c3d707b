"""The HTML of every page: one shell, and a card or a screen inside it.

Pure functions of their arguments; whatever comes from elsewhere is escaped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from gateway.pages.parts import Parts

_SIGN_OUT: Final = '<a class="button" href="/.fumarole/sign-out">Sign out</a>'
_NOTHING: Final[Mapping[str, str]] = {}
_TERMINAL_MENU: Final = (
    '<details id="menu"><summary>Menu</summary><div>'
    '<button id="find" type="button">Search <kbd>Ctrl+Shift+F</kbd></button>'
    '<div class="row"><span>Text</span><span>'
    '<button id="smaller" type="button" aria-label="Smaller text">−</button>'
    '<span id="size"></span>'
    '<button id="larger" type="button" aria-label="Larger text">+</button></span></div>'
    '<div class="row"><label for="theme">Colours</label><select id="theme">'
    '<option value="">As the system</option><option value="light">Light</option>'
    '<option value="dark">Dark</option></select></div>'
    '<div class="row"><label for="reader">For screen readers</label>'
    '<input id="reader" type="checkbox"></div></div></details>'
)
_TERMINAL_SEARCH: Final = (
    '<form id="search" role="search" hidden><input id="search-text" type="search" '
    'aria-label="Search in the output" autocomplete="off" autocapitalize="none" '
    'spellcheck="false" maxlength="255"><span id="search-count" aria-live="polite"></span>'
    '<button aria-label="Previous" title="Enter">↑</button>'
    '<button id="search-next" type="button" aria-label="Next" title="Shift+Enter">↓</button>'
    '<button id="search-close" type="button" aria-label="Close" title="Esc">×</button></form>'
)
_KEY_ROW: Final = (
    '<div id="key-row" class="key-row" role="toolbar" aria-label="Keys">'
    '<button type="button" data-key="escape">Esc</button>'
    '<button type="button" data-key="ctrl" aria-pressed="false">Ctrl</button>'
    '<button type="button" data-key="tab">Tab</button>'
    '<button type="button" data-key="left" aria-label="Left">←</button>'
    '<button type="button" data-key="up" aria-label="Up">↑</button>'
    '<button type="button" data-key="down" aria-label="Down">↓</button>'
    '<button type="button" data-key="right" aria-label="Right">→</button></div>'
)


def page_headers(
    frame_ancestors: str,
    *,
    sameorigin_referrer: bool = False,
    scripts: str = "'self'",
    styles: str = "'self'",
) -> dict[str, str]:
    """Return what every page of ours is sent with; *scripts* and *styles* are what it may use.

    The page that posts a token needs its origin told to its own server: under ``no-referrer``
    browsers send ``Origin: null``.
    """
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data:; "
        f"connect-src 'self'; form-action 'self'; base-uri 'none'; {frame_ancestors}"
    )
    return {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "same-origin" if sameorigin_referrer else "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
        # Siblings are one site: without this their pages may share a process with ours.
        "Origin-Agent-Cluster": "?1",
        "Cache-Control": "no-store",
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


class Documents:
    """Writes pages that are made of *parts*."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def card(self, card: Card) -> str:
        """Return a page with one message in its middle."""
        progress = '<div class="bar-of-progress" role="presentation"></div>' if card.busy else ""
        advice = f'<p class="next">{escape(card.advice)}</p>' if card.advice else ""
        actions = f'<div class="actions">{card.actions}</div>' if card.actions else ""
        lines = "".join(f"<p>{escape(line)}</p>" for line in card.detail.splitlines())
        summary = f'<details class="detail"><summary>Details</summary>{lines}</details>'
        detail = summary if lines else ""
        steps = '<ol id="steps" class="steps" hidden></ol>' if card.steps else ""
        body = (
            f'<main class="centre"><section class="card">{self._brand()}'
            f"<h1>{escape(card.title)}</h1>"
            f'<p id="status" role="status" aria-live="polite">{escape(card.status)}</p>'
            f'<p id="stuck" class="stuck" hidden></p>'
            f"{progress}{steps}{advice}{actions}{detail}</section></main>"
        )
        return self._shell(card.title, body, script=card.script, data=card.data)

    def terminal(self, title: str, *, mode: str, clipboard: str = "both") -> str:
        """Return the page of a terminal."""
        new = '<a class="button" href="/?new" target="_blank" rel="noopener">New shell</a>'
        tools = (
            '<select id="shells" aria-label="Shell" hidden></select>'
            '<button id="copy" type="button" title="Ctrl+Shift+C">Copy</button>'
            '<button id="paste" type="button" title="Ctrl+Shift+V">Paste</button>'
            f"{new if mode == 'control' else ''}{_TERMINAL_MENU}"
        )
        question = (
            '<dialog id="paste-question" class="card" aria-labelledby="paste-title">'
            '<h2 id="paste-title">Paste several lines?</h2>'
            "<p>The shell runs each line as soon as it is pasted.</p><pre></pre>"
            '<form method="dialog" class="actions"><button class="first" value="paste">Paste'
            '</button><button value="" autofocus>Cancel</button></form></dialog>'
        )
        renew = '<button id="renew" class="first" type="button">Begin a new shell</button>'
        revoked = (
            '<section id="revoked" class="card" role="alert" hidden>'
            "<h2>This shell may not do what it seems to</h2>"
            "<p>Somebody has typed into it whose access was withdrawn. Commands may have been "
            "given another meaning. A new shell ends what runs in this one, but not what was put "
            "into the background or written to files.</p>"
            f'<div class="actions">{renew if mode == "control" else ""}'
            '<button id="keep" type="button">Keep this one</button></div></section>'
        )
        screen = (
            f'<div class="screen"><div class="terminal-screen"></div>{_TERMINAL_SEARCH}'
            f"{revoked}{question}"
        )
        return self._screen(
            "Terminal",
            title,
            mode,
            tools,
            screen,
            clipboard=clipboard,
            style="terminal.css",
            below=_KEY_ROW if mode == "control" else "",
        )

    def desktop(self, title: str, *, mode: str, clipboard: str = "both") -> str:
        """Return the page of a desktop."""
        tools = (
            '<button id="scale" type="button" aria-pressed="true">Fit to window</button>'
            '<button id="copy" type="button" class="wide" disabled>Copy from desktop</button>'
            '<button id="paste" type="button" class="wide">Paste clipboard</button>'
            '<button id="keys" type="button" class="wide">Ctrl+Alt+Del</button>'
            '<button id="full" type="button">Full screen</button>'
        )
        # No field has a name, and nothing is sent by the form: browsers have nothing to remember.
        form = (
            '<form id="password-form" class="notice" autocomplete="off" hidden><div class="card">'
            "<h2>This desktop asks for its password</h2>"
            '<p id="password-problem" class="problem" role="alert" hidden></p>'
            '<p hidden><label for="username">User name</label><input id="username" '
            'autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="255"></p>'
            '<p><label for="password">Password</label><input id="password" type="password" '
            'autocomplete="off" maxlength="255" required aria-describedby="password-problem"></p>'
            '<p class="next">It goes to the desktop only, and is not remembered.</p>'
            '<div class="actions"><button class="first">Connect</button></div></div></form>'
        )
        screen = f'<div class="screen"><div class="desktop-screen"></div>{form}'
        return self._screen("Desktop", title, mode, tools, screen, clipboard=clipboard)

    def _screen(
        self,
        kind: str,
        title: str,
        mode: str,
        tools: str,
        screen: str,
        *,
        clipboard: str,
        style: str | None = None,
        below: str = "",
    ) -> str:
        badge = '<span class="badge">view only</span>' if mode == "view" else ""
        body = (
            f'<header class="bar">{self._icon()}<h1>{escape(title)}</h1>{badge}'
            '<div class="state" role="status" aria-live="polite" data-state="busy">'
            f'<span>Connecting…</span></div><div class="tools">{tools}{_SIGN_OUT}</div></header>'
            f'<main aria-label="{kind}" class="screen-main">{screen}'
            '<div id="notice" class="notice"><section class="card">'
            '<h2 id="notice-title">Connecting…</h2>'
            "<p></p><noscript><p>This page needs JavaScript.</p></noscript>"
            '<div class="actions" hidden><button class="first" type="button" '
            'aria-describedby="notice-title">Try now</button>'
            f"</div></section></div></div></main>{below}"
        )
        whole = f"{kind} · {title}"
        return self._shell(
            whole,
            body,
            script=f"{kind.lower()}.js",
            style=style,
            data={"mode": mode, "clipboard": clipboard, "title": whole},
            classes="screen-page",
        )

    def _shell(
        self,
        title: str,
        body: str,
        *,
        script: str | None,
        data: Mapping[str, str],
        style: str | None = None,
        classes: str = "",
    ) -> str:
        styles = ["pages.css", style] if style else ["pages.css"]
        links = "".join(map(self._parts.style, styles))
        code = self._parts.script(script) if script else ""
        attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{escape(title)}</title>"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<link rel="icon" type="image/svg+xml" href="{self._parts.icon()}">'
            f"{links}{code}</head>"
            f'<body class="{classes}"{attributes}>{body}</body></html>'
        )

    def _brand(self) -> str:
        return f'<div class="brand">{self._icon()}<span>Fumarole</span></div>'

    def _icon(self) -> str:
        return f'<img src="{self._parts.icon()}" alt="" width="24" height="24">'


def link_action(url: str, text: str, *, first: bool = True) -> str:
    """Return a link that looks like a button."""
    classes = "button first" if first else "button"
    return f'<a class="{classes}" href="{escape(url)}" rel="noreferrer">{escape(text)}</a>'


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
