"""Every refusal as a page for people: what happened, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from gateway.core.access.answers import (
    REFUSALS,
    JsonErrors,
    Page,
    Refusal,
    Subject,
    without_controls,
)
from gateway.core.http.accept import wants_page
from gateway.core.http.oversize import CLEAR_PATH
from gateway.pages.documents import Card, Documents, link_action, page_headers
from gateway.pages.parts import Inside
from gateway.pages.wording import words_of


class Words(NamedTuple):
    """What a page says beyond the refusal's own message."""

    title: str
    advice: str


_OPEN_AGAIN: Final = "Open it again from where you started it: you will be given a new link."
_WAIT: Final = "Nothing needs to be done: this page tries again by itself, or reload it."
_TELL: Final = "If it stays like this, tell whoever runs this installation."

WORDS: Final[Mapping[str, Words]] = MappingProxyType(
    {
        "no_credential": Words(
            "This session is not open here",
            "A link alone opens nothing. " + _OPEN_AGAIN + " If it was open a moment ago, your "
            "browser may have dropped its cookie because apps have set too many.",
        ),
        "bad_credential": Words("This link does not work", _OPEN_AGAIN),
        "token_spent": Words(
            "This link was used already", "Each link opens one session once. " + _OPEN_AGAIN
        ),
        "grant_ended": Words("Your access has ended", _OPEN_AGAIN),
        "grant_revoked": Words(
            "Your access was withdrawn",
            "If you think that you should have it, ask whoever owns the job.",
        ),
        "bearer_only": Words(
            "This session is for programs",
            "It is reached with a bearer token, and cannot be opened in a browser.",
        ),
        "other_session": Words("This link is for something else", _OPEN_AGAIN),
        "other_origin": Words(
            "This came from another page",
            "For your safety only pages of this address may do that. Open the session directly.",
        ),
        "view_only": Words(
            "This cannot be opened for viewing only",
            "An application cannot be made read-only. Ask for full access instead.",
        ),
        "root_service_worker": Words(
            "This is not allowed here",
            "A service worker of the application may not stand before the gateway's own pages.",
        ),
        "other_user": Words("Someone else is signed in here", ""),
        "not_found": Words(
            "There is nothing here",
            "The address may be mistyped, or its session has ended long ago.",
        ),
        "session_ended": Words(
            "This session has ended",
            "Its job has finished or was stopped. You can close this tab.",
        ),
        "session_expired": Words(
            "This session's time is over", "Start the job again, or extend it, where it is managed."
        ),
        "session_closing": Words(
            "This session is being closed", "What is open goes on for now; nothing new can begin."
        ),
        "session_starting": Words(
            "Your session is starting", "You will be taken there by itself as soon as it is ready."
        ),
        "session_unreadable": Words("This session cannot be shown at the moment", _TELL),
        "target_changed": Words("The application is being replaced", _WAIT),
        "target_forbidden": Words("The application cannot be reached from here", _TELL),
        "app_unreachable": Words(
            "The application does not answer",
            "It may still be starting inside its job, or it has stopped. " + _WAIT,
        ),
        "app_bad_answer": Words(
            "The application answered with something unreadable",
            "That is a fault of the application, not of your link. Try again in a moment.",
        ),
        "app_timeout": Words(
            "The application took too long", "It may be busy. Try again in a moment."
        ),
        "bus_lost": Words("The gateway is cut off at the moment", _WAIT),
        "token_unsure": Words("This link cannot be checked at the moment", _OPEN_AGAIN),
        "controller_silent": Words(
            "Nothing new can be opened at the moment", "What is open goes on. " + _WAIT
        ),
        "too_many_connections": Words(
            "Too many connections are open", "Close tabs that you do not need. " + _WAIT
        ),
        "too_many_opens": Words("Sessions were opened too often from here", _OPEN_AGAIN),
        "too_many_checks": Words("The gateway is busy", _OPEN_AGAIN),
        "gateway_overloaded": Words("The gateway is overloaded", _WAIT),
        "too_many_refusals": Words(
            "Too many requests were refused",
            "They came from your network, not necessarily from you. " + _WAIT,
        ),
        "gateway_full": Words("The gateway is full", _WAIT),
        "body_too_large": Words("That was too much at once", "Send less."),
        "target_too_long": Words("The address is too long", "Use a shorter one."),
        "head_too_large": Words(
            "Your browser sent too much",
            "Cookies for this address are the usual cause. Clear them, and open it again; apps may "
            "sign you out.",
        ),
    }
)
_OTHERWISE: Final = Words("This request was not understood", "Go back, and try again.")

# A new link is what helps here; where it comes from is known when the issuer is a web site.
_LEADS_BACK: Final = frozenset(
    {
        "no_credential",
        "bad_credential",
        "token_spent",
        "token_unsure",
        "grant_ended",
        "grant_revoked",
        "other_session",
        "session_ended",
        "session_expired",
        "not_found",
        "too_many_opens",
        "too_many_checks",
    }
)
# About a job, whose place in the orchestrator has what helps.
_MANAGED: Final = frozenset(
    {
        "session_ended",
        "session_expired",
        "session_closing",
        "session_starting",
        "app_unreachable",
        "app_timeout",
    }
)
# The token of such a request is gone or useless: trying the same again cannot help.
_NOT_AGAIN: Final = frozenset({"token_unsure", "too_many_opens", "too_many_checks"})
# Its answer names no time to come back, but apps do this while they start: JupyterLab listens,
# lets go of its port, and listens again, and a probe may have met it in the first moment.
_AGAIN_SECONDS: Final = MappingProxyType({"app_unreachable": 1})


class PageErrors:
    """Renders refusals for the data path and for the pages themselves.

    Args:
        parts: What the pages hold: nothing else may be served where they are shown.
        frame_ancestors: Who may frame them, as a policy directive.
        home: Where links come from, if that is known.
        orchestrator: Where a job is managed: an address that holds ``{job}`` and ``{sid}``.
    """

    def __init__(
        self,
        parts: Inside,
        *,
        frame_ancestors: str,
        home: str | None,
        orchestrator: str | None = None,
    ) -> None:
        self._orchestrator = orchestrator
        self._documents = Documents(parts)
        headers = page_headers(frame_ancestors, scripts=parts.scripts, styles=parts.styles)
        self._headers = tuple(
            (name, value)
            for name, value in headers.items()
            # Set for every answer, by whoever writes it.
            if name not in ("Cache-Control", "X-Content-Type-Options")
        )
        self._home = home
        self._json = JsonErrors()
        self._pages: dict[Refusal, Page] = {}

    def render(self, refusal: Refusal, accept: bytes) -> Page:
        """Return a page for browsers, JSON for everybody else."""
        if not wants_page(accept):
            return _json_of(refusal) or self._json.render(refusal, accept)
        # Messages of routes are few at a time, but not bounded.
        page = self._pages.get(refusal)
        if page is None:
            if len(self._pages) >= 256:
                self._pages.clear()
            body = self._documents.card(self._card(refusal)).encode()
            page = self._pages[refusal] = Page("text/html; charset=utf-8", body, self._headers)
        return page

    def _card(self, refusal: Refusal) -> Card:
        words = WORDS.get(refusal.code, _OTHERWISE)
        told = words_of(refusal)
        starting = refusal.code == "session_starting"
        seconds = _AGAIN_SECONDS.get(refusal.code, refusal.retry_after_seconds)
        again = seconds is not None and refusal.code not in _NOT_AGAIN
        script = "starting.js" if starting else "retry.js" if again else None
        data = {"retry-seconds": str(seconds)} if again else {}
        return Card(
            title=words.title if told is None else told.title,
            status=_status(refusal) if told is None else told.text,
            advice=words.advice if told is None else told.advice.strip(),
            actions=self._actions(refusal),
            detail=_details(refusal),
            script=script,
            busy=starting,
            steps=starting,
            data=data | _data(refusal),
        )

    def _actions(self, refusal: Refusal) -> str:
        if refusal.code == "head_too_large":
            return link_action(CLEAR_PATH.decode(), "Clear these cookies")
        job = self._job_url(refusal.subject) if refusal.code in _MANAGED else None
        if job is not None:
            ended = refusal.code in ("session_ended", "session_expired")
            return link_action(job, "Go to the job" if ended else "Log and stop", first=ended)
        if self._home and refusal.code in _LEADS_BACK:
            return link_action(self._home, "Go to where sessions are started")
        return ""

    def _job_url(self, subject: Subject | None) -> str | None:
        """Return where the job is managed: its log, how to stop, extend and share it."""
        if self._orchestrator is None or subject is None or subject.job is None:
            return None
        with_job = self._orchestrator.replace("{job}", quote(subject.job, safe=""))
        return with_job.replace("{sid}", subject.sid)


def _json_of(refusal: Refusal) -> Page | None:
    """Return *refusal* for programs, with what our own pages show; None where that is nothing."""
    told = words_of(refusal)
    if told is None:
        return None
    shown = {"title": told.title, "text": told.text}
    body = json.dumps({"code": refusal.code, "message": refusal.message} | shown).encode()
    return Page("application/json", body)


def _data(refusal: Refusal) -> dict[str, str]:
    """Return what the page's script shows of the session: since when, and at which port."""
    subject = refusal.subject
    if subject is None:
        return {}
    if refusal.code == "session_starting" and subject.status is not None:
        return {"status": msgspec.json.encode(subject.status).decode()}
    if refusal.code in ("app_unreachable", "app_timeout") and subject.port is not None:
        return {"port": str(subject.port)}
    return {}


def _details(refusal: Refusal) -> str:
    """Return the small print, for whoever is asked for help: words for programs, and ids."""
    lines = [f"{refusal.status} · {refusal.code}"]
    subject = refusal.subject
    # Of a start it would be that of the moment when the page was asked for.
    status = subject.status if subject is not None and refusal.code == "session_ended" else None
    if status is not None and status.reason:
        lines.append(f"reason: {without_controls(status.reason)}")
    if subject is not None and subject.job is not None:
        lines.append(f"job: {without_controls(subject.job)}")
    return "\n".join(lines)


def _status(refusal: Refusal) -> str:
    """Return what the title does not say already: a route's own message, say."""
    usual = REFUSALS.get(refusal.code)
    if refusal.code in WORDS and usual is not None and usual.message == refusal.message:
        return ""
    return refusal.message
