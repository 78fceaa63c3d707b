"""The markup that only a terminal's page has: its tools, search, questions and row of keys."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final, TypeAlias

from gateway.pages.texts import Texts

_Say: TypeAlias = Callable[[str], str]
_ARROWS: Final = (("left", "←"), ("up", "↑"), ("down", "↓"), ("right", "→"))


def _saying(texts: Texts) -> _Say:
    return lambda name: escape(texts(f"terminal.{name}"))


def _combining(texts: Texts) -> _Say:
    return lambda key: escape(texts("terminal.combination", key=key))


def tools(texts: Texts, *, controls: bool) -> str:
    """Return what stands in the bar."""
    say, keys = _saying(texts), _combining(texts)
    return (
        f'<select id="shells" aria-label="{say("shell")}" hidden></select>'
        f'<button id="copy" type="button" title="{keys("C")}" disabled>{say("copy")}</button>'
        f'<button id="paste" type="button" data-live title="{keys("V")}">{say("paste")}</button>'
        f"{_new_shell(say, 'button wide') if controls else ''}"
        f'<details id="menu"><summary>{say("menu")}</summary><div>{_menu(say, keys)}'
        f"{_new_shell(say, 'button') if controls else ''}</div></details>"
    )


def _new_shell(say: _Say, classes: str) -> str:
    text = say("new_shell")
    where = 'href="/?new" target="_blank" rel="noopener"'
    return f'<a class="{classes}" data-live {where}>{text}</a>'


def _menu(say: _Say, keys: _Say) -> str:
    return (
        f'<button id="find" type="button">{say("search")} <kbd>{keys("F")}</kbd></button>'
        f'<div class="row"><span>{say("text")}</span><span>'
        f'<button id="smaller" type="button" aria-label="{say("smaller")}">−</button>'
        '<span id="size"></span>'
        f'<button id="larger" type="button" aria-label="{say("larger")}">+</button></span></div>'
        f'<div class="row"><label for="theme">{say("colours")}</label><select id="theme">'
        f'<option value="">{say("as_system")}</option><option value="light">{say("light")}</option>'
        f'<option value="dark">{say("dark")}</option></select></div>'
        f'<div class="row"><label for="reader">{say("reader")}</label>'
        '<input id="reader" type="checkbox"></div>'
    )


def search(texts: Texts) -> str:
    """Return the form that searches in the output."""
    say = _saying(texts)
    return (
        '<form id="search" role="search" hidden><input id="search-text" type="search" '
        f'aria-label="{say("search_output")}" autocomplete="off" autocapitalize="none" '
        'spellcheck="false" maxlength="255"><span id="search-count" aria-live="polite"></span>'
        f'<button aria-label="{say("previous")}" title="Enter">↑</button>'
        f'<button id="search-next" type="button" aria-label="{say("next")}" title="Shift+Enter">↓'
        f'</button><button id="search-close" type="button" aria-label="{say("close")}" title="Esc">'
        "×</button></form>"
    )


def paste_question(texts: Texts) -> str:
    """Return the question before several lines are pasted."""
    say = _saying(texts)
    return (
        '<dialog id="paste-question" class="card" aria-labelledby="paste-title">'
        f'<h2 id="paste-title">{say("paste_title")}</h2><p>{say("paste_text")}</p><pre></pre>'
        '<form method="dialog" class="actions"><button class="first" value="paste">'
        f'{say("paste")}</button><button value="" autofocus>{say("cancel")}</button></form>'
        "</dialog>"
    )


def revoked(texts: Texts, *, controls: bool) -> str:
    """Return what is said of a shell into which somebody has typed whose access was withdrawn."""
    say = _saying(texts)
    renew = f'<button id="renew" class="first" type="button">{say("renew")}</button>'
    return (
        '<section id="revoked" class="card" role="alert" hidden>'
        f"<h2>{say('revoked_title')}</h2><p>{say('revoked_text')}</p>"
        f'<div class="actions">{renew if controls else ""}'
        f'<button id="keep" type="button">{say("keep")}</button></div></section>'
    )


def key_row(texts: Texts) -> str:
    """Return the keys that a touch keyboard lacks."""
    say = _saying(texts)
    arrows = "".join(
        f'<button type="button" data-key="{key}" aria-label="{say(key)}">{sign}</button>'
        for key, sign in _ARROWS
    )
    return (
        f'<div id="key-row" class="key-row" role="toolbar" aria-label="{say("keys")}">'
        '<button type="button" data-key="escape">Esc</button>'
        f'<button type="button" data-key="ctrl" aria-pressed="false">{say("ctrl")}</button>'
        f'<button type="button" data-key="tab">Tab</button>{arrows}</div>'
    )
