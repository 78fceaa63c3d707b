"""Every refusal as a page for people: what happened, and what to do next."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

import msgspec

from gateway.core.access.refusals import (
    REFUSALS,
    JsonRefusals,
    Page,
    Refusal,
    Subject,
    without_controls,
)
from gateway.core.http.accept import prefers_html
from gateway.core.http.oversize import CLEAR_PATH
from gateway.pages.assets import Inside
from gateway.pages.documents import VARY, Card, Documents, link_action, page_headers
from gateway.pages.texts import LANGUAGES, Texts, words_of

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
        self._json = JsonRefusals()
        self._pages: dict[tuple[Refusal, str], Page] = {}

    def render(self, refusal: Refusal, accept: bytes, languages: bytes = b"") -> Page:
        """Return a page for browsers, JSON for everybody else."""
        texts = LANGUAGES.of(languages)
        if not prefers_html(accept):
            told = _json_of(refusal, texts) or self._json.render(refusal, accept)
            return told._replace(fields=(("Vary", VARY),))
        # Messages of routes are few at a time, but not bounded.
        page = self._pages.get((refusal, texts.language))
        if page is None:
            if len(self._pages) >= 256:
                self._pages.clear()
            body = self._documents.card(self._card(refusal, texts), texts).encode()
            fields = (*self._headers_of(refusal), ("Content-Language", texts.language))
            page = Page("text/html; charset=utf-8", body, fields)
            self._pages[refusal, texts.language] = page
        return page

    def _headers_of(self, refusal: Refusal) -> tuple[tuple[str, str], ...]:
        if refusal.ends_at is None:
            return self._headers
        # It stands in for the app's page, which may be a window that another of its pages opened:
        # a policy of ours would part the two for good.
        return tuple(one for one in self._headers if one[0] != "Cross-Origin-Opener-Policy")

    def _card(self, refusal: Refusal, texts: Texts) -> Card:
        told = words_of(refusal, texts)
        known = f"refusals.{refusal.code}"
        words = known if f"{known}.title" in texts else "refusals.otherwise"
        starting = refusal.code == "session_starting"
        seconds = _AGAIN_SECONDS.get(refusal.code, refusal.retry_after_seconds)
        again = seconds is not None and refusal.code not in _NOT_AGAIN
        script = "starting.js" if starting else "retry.js" if again else None
        if refusal.ends_at is not None:
            script = "soon.js"
        data = {"retry-seconds": str(seconds)} if again else {}
        return Card(
            title=texts(f"{words}.title") if told is None else told.title,
            status=_status(refusal) if told is None else told.text,
            advice=texts(f"{words}.advice") if told is None else told.advice,
            actions=self._actions(refusal, texts),
            detail=_details(refusal, texts),
            script=script,
            busy=starting,
            steps=starting,
            data=data | _data(refusal),
        )

    def _actions(self, refusal: Refusal, texts: Texts) -> str:
        if refusal.code == "head_too_large":
            return link_action(CLEAR_PATH.decode(), texts("actions.clear_cookies"), first=True)
        if refusal.ends_at is not None:
            go_on = link_action("", texts("actions.go_on"), first=True)
            return go_on + self._ways_out(refusal, texts)
        managed = refusal.code in _MANAGED
        job = job_url(self._orchestrator, refusal.subject) if managed else None
        if job is not None:
            ended = refusal.code in ("session_ended", "session_expired")
            text = texts("actions.job" if ended else "actions.job_running")
            return link_action(job, text, first=ended)
        if self._home and refusal.code in _LEADS_BACK:
            return link_action(self._home, texts("actions.home"), first=True)
        return ""

    def _ways_out(self, refusal: Refusal, texts: Texts) -> str:
        """Return where more time is to be had; beside the session, which goes on here."""
        if refusal.code == "access_ends_soon":
            return link_action(self._home, texts("actions.home"), tab=True) if self._home else ""
        job = job_url(self._orchestrator, refusal.subject)
        return link_action(job, texts("actions.extend"), tab=True) if job else ""


def job_url(orchestrator: str | None, subject: Subject | None) -> str | None:
    """Return where the job is managed: its log, how to stop, extend and share it."""
    if orchestrator is None or subject is None or subject.job is None:
        return None
    with_job = orchestrator.replace("{job}", quote(subject.job, safe=""))
    return with_job.replace("{sid}", subject.sid)


def _json_of(refusal: Refusal, texts: Texts) -> Page | None:
    """Return *refusal* for programs, with what our own pages show; None where that is nothing."""
    told = words_of(refusal, texts)
    if told is None:
        return None
    shown = {"title": told.title, "text": told.text}
    body = json.dumps({"code": refusal.code, "message": refusal.message} | shown).encode()
    return Page("application/json", body)


def _data(refusal: Refusal) -> dict[str, str]:
    """Return what the page's script shows of the session: since or until when, at which port."""
    subject = refusal.subject
    if refusal.ends_at is not None:
        return {"ends-at": str(refusal.ends_at)}
    if subject is None:
        return {}
    if refusal.code == "session_starting" and subject.status is not None:
        return {"status": msgspec.json.encode(subject.status).decode()}
    if refusal.code in ("app_unreachable", "app_timeout") and subject.port is not None:
        return {"port": str(subject.port)}
    return {}


def _details(refusal: Refusal, texts: Texts) -> str:
    """Return the small print, for whoever is asked for help: words for programs, and ids."""
    lines = [f"{refusal.status} · {refusal.code}"]
    if f"refusals.{refusal.code}.title" not in texts:
        lines.append(refusal.message)
    subject = refusal.subject
    # Of a start it would be that of the moment when the page was asked for.
    status = subject.status if subject is not None and refusal.code == "session_ended" else None
    if status is not None and status.reason:
        lines.append(texts("page.detail_reason", reason=without_controls(status.reason)))
    if subject is not None and subject.job is not None:
        lines.append(texts("page.detail_job", job=without_controls(subject.job)))
    return "\n".join(lines)


def _status(refusal: Refusal) -> str:
    """Return what the title does not say already: a route's own message."""
    usual = REFUSALS.get(refusal.code)
    return "" if usual is None or usual.message == refusal.message else refusal.message
