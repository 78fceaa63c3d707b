"""Renders refusals as pages: what happened, and what the user can do next."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from gateway.core.access.refusals import (
    REFUSALS,
    Page,
    Refusal,
    RefusalRenderer,
    Subject,
    json_page,
)
from gateway.core.http.accept import prefers_html
from gateway.pages.assets import Inside
from gateway.pages.documents import VARY, Card, Documents, link_action, page_headers
from gateway.pages.texts import LANGUAGES, Texts, words_of

# Refusals with a link to the orchestrator's site, where the user can get a new link.
_LEADS_BACK: Final = frozenset(
    {
        "no_credential",
        "two_cookies",
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
# Refusals with a link to the job's page at the orchestrator.
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
# Refusals of a request whose token is spent: a retry cannot succeed.
_NOT_AGAIN: Final = frozenset({"token_unsure", "too_many_opens", "too_many_checks"})
# Refusals that no longer hold once the user has opened the session in another tab.
_SIGNED_OUT: Final = frozenset({"no_credential", "grant_ended", "grant_revoked"})
# Without Retry-After, but worth a retry, since apps do this while they start: JupyterLab opens its
# port, closes it, and opens it again, and the gateway may have connected in the first moment.
_AGAIN_SECONDS: Final = {"app_unreachable": 1}


class PageErrors(RefusalRenderer):
    """Renders refusals for the data path and for the pages.

    Args:
        parts: Embeds scripts and styles, since the host may serve no files.
        frame_ancestors: The policy directive that says which sites may frame the pages.
        home: The orchestrator's site, if known.
        orchestrator: The URL template of a job's page, with ``{job}`` and ``{sid}``.
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
            # The code that writes a refusal sets these for every response.
            if name not in ("Cache-Control", "X-Content-Type-Options")
        )
        self._home = home
        self._pages: dict[tuple[Refusal, str], Page] = {}

    def render(self, refusal: Refusal, accept: bytes, languages: bytes = b"") -> Page:
        """Return a page if *accept* prefers HTML, else JSON."""
        texts = LANGUAGES.of(languages)
        if not prefers_html(accept):
            own = words_of(refusal, texts)
            shown = {} if own is None else {"title": own.title, "text": own.text}
            return json_page(refusal, **shown)._replace(fields=(("Vary", VARY),))
        # The cache is bounded, since routes may hold any number of messages over time.
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
        if refusal.sent == "link":
            # So that a reload posts the link with its origin (page_headers).
            own = ("Referrer-Policy", "same-origin")
            return tuple(own if one[0] == own[0] else one for one in self._headers)
        replaces = refusal.ends_at is not None or refusal.code.startswith("app_")
        if not replaces and not refusal.sent:
            return self._headers
        # The page replaces a document of the app, which may be a pop-up of another one. An opener
        # policy would cut the reference between the two for good. Firefox would also forget the
        # text of a form on the page that the user goes back to.
        return tuple(one for one in self._headers if one[0] != "Cross-Origin-Opener-Policy")

    def _card(self, refusal: Refusal, texts: Texts) -> Card:
        own = words_of(refusal, texts)
        known = f"refusals.{refusal.code}"
        words = known if f"{known}.title" in texts else "refusals.otherwise"
        seconds = _AGAIN_SECONDS.get(refusal.code, refusal.retry_after_seconds)
        passes = seconds is not None and refusal.code not in _NOT_AGAIN
        # A page that loads its address again does not send again what was sent to it.
        again = passes and not refusal.sent
        starting = again and refusal.code == "session_starting"
        script = "starting.js" if starting else "retry.js" if again else None
        if refusal.sent == "link":
            script = "reopen.js"
        elif refusal.code in _SIGNED_OUT and not refusal.sent:
            script = "signed-out.js"
        if refusal.ends_at is not None:
            script = "soon.js"
        data = {"retry-seconds": str(seconds)} if again else {}
        advice = texts(f"{words}.advice") if own is None else own.advice
        if passes and refusal.sent:
            advice = texts("opening.again" if refusal.sent == "link" else "page.send_again")
        status = _status(refusal) if own is None else own.text
        return Card(
            title=texts(f"{words}.title") if own is None else own.title,
            status=texts("page.signed_in") if refusal.way_in else status,
            advice=advice,
            actions=self._actions(refusal, texts),
            detail=_details(refusal, texts),
            script=script,
            busy=starting,
            steps=starting,
            data=data | _data(refusal),
        )

    def _actions(self, refusal: Refusal, texts: Texts) -> str:
        if refusal.ends_at is not None:
            go_on = link_action("", texts("actions.go_on"), first=True)
            return go_on + self._ways_out(refusal, texts)
        if refusal.way_in:
            enter = link_action(refusal.way_in, texts("actions.enter"), first=True)
            return enter + (link_action(self._home, texts("actions.home")) if self._home else "")
        managed = refusal.code in _MANAGED
        job = job_url(self._orchestrator, refusal.subject) if managed else None
        if job is not None:
            ended = refusal.code in ("session_ended", "session_expired")
            text = texts("actions.job" if ended else "actions.job_running")
            return link_action(job, text, first=ended)
        if self._home and (refusal.code in _LEADS_BACK or refusal.sent == "link"):
            return link_action(self._home, texts("actions.home"), first=True)
        return ""

    def _ways_out(self, refusal: Refusal, texts: Texts) -> str:
        """Return the link, into a new tab, to extend the session or the access to it."""
        if refusal.code == "access_ends_soon":
            return link_action(self._home, texts("actions.home"), tab=True) if self._home else ""
        job = job_url(self._orchestrator, refusal.subject)
        return link_action(job, texts("actions.extend"), tab=True) if job else ""


def job_url(orchestrator: str | None, subject: Subject | None) -> str | None:
    """Return the URL of the job's page at the orchestrator; None if it is not known."""
    if orchestrator is None or subject is None:
        return None
    with_job = orchestrator.replace("{job}", quote(subject.job, safe=""))
    return with_job.replace("{sid}", subject.sid)


def _data(refusal: Refusal) -> dict[str, str]:
    """Return the ``data-`` attributes for the page's script."""
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
    """Return the small print for support staff: status, code and ids."""
    lines = [f"{refusal.status} · {refusal.code}"]
    if f"refusals.{refusal.code}.title" not in texts:
        lines.append(refusal.message)
    subject = refusal.subject
    # Not for a starting session, whose reason changes after the page was loaded.
    if refusal.told_reason:
        lines.append(texts("page.detail_reason", reason=refusal.told_reason))
    status = subject.status if subject is not None and refusal.code == "session_ended" else None
    if status is not None and status.reason:
        lines.append(texts("page.detail_reason", reason=status.reason))
    if subject is not None:
        lines.append(texts("page.detail_job", job=subject.job))
    return "\n".join(lines)


def _status(refusal: Refusal) -> str:
    """Return the route's own message; empty for the standard message, which the title covers."""
    usual = REFUSALS.get(refusal.code)
    return "" if usual is None or usual.message == refusal.message else refusal.message
