"""What people read of a session that starts, or has ended: plain, short, with the app's name.

All of it is text. Words of others (the scheduler's, a job's name) stand in it as they came, and are
escaped where a page is made of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.core.access.answers import Refusal, Subject, subject_of, without_controls

if TYPE_CHECKING:
    from gateway.pages.texts import Texts
    from shared.route_table.statuses import Status
    from shared.routes import Route


class Told(NamedTuple):
    """A page's heading, what it says, and what to do next."""

    title: str
    text: str
    advice: str


_DETAILED: Final = frozenset({"ends.failed", "ends.evicted", "starts.queued"})
"""Phases of which the detail says more than any text of ours."""
_PULLS: Final = frozenset({None, "ContainerCreating", "PodInitializing"})
"""A kubelet's words while all is well with an image; the detail names that image then."""


def words_of(refusal: Refusal, texts: Texts) -> Told | None:
    """Return what there is to say of the session that *refusal* is about; None for nothing new."""
    if refusal.ends_at is not None:
        return _ends_soon(refusal, refusal.ends_at, texts)
    status = None if refusal.subject is None else refusal.subject.status
    if status is None:
        return None
    match refusal.code:
        case "session_ended":
            words = f"ends.{status.phase}"
        case "session_expired":
            words = "ends.expired"
        case "session_starting":
            words = f"starts.{status.phase}"
        case _:
            return None
    if f"{words}.title" not in texts:
        return None
    title = texts(f"{words}.title", app=named(refusal.subject) or texts("page.your_app"))
    text = _text(status, words, texts)
    if refusal.code == "session_starting":
        by_itself = "" if status.phase == "suspended" else texts("starts.by_itself")
        return Told(title, text, by_itself)
    again = "" if status.phase == "closed" else texts("ends.again")
    return Told(title, f"{texts('ends.over')} {text}", again)


def _ends_soon(refusal: Refusal, ends_at: int, texts: Texts) -> Told:
    """Return what is said before a session or an access ends; a script says it in local time."""
    usual, words = f"refusals.{refusal.code}", f"ends.{refusal.code}"
    app = named(refusal.subject)
    title = texts(f"{words}.title", app=app) if app else texts(f"{usual}.title")
    time = datetime.fromtimestamp(ends_at, UTC).strftime("%H:%M UTC")
    return Told(title, texts(f"{words}.text", time=time), texts(f"{usual}.advice"))


def named(subject: Subject | None) -> str | None:
    """Return what the app is called, if that is known."""
    name = subject.status.app if subject is not None and subject.status is not None else None
    return without_controls(name) if name else None


def title_of(route: Route, texts: Texts) -> str:
    """Return what people call the session of *route*: its app, and the rank beyond the first."""
    app = named(subject_of(route)) or texts(f"kinds.{route.kind}")
    return texts("page.rank", app=app, rank=route.rank) if route.rank else app


def _text(status: Status, words: str, texts: Texts) -> str:
    detail = without_controls(status.detail or "")
    if words == "ends.stopped" and status.by:
        return texts(f"{words}.text_by", user=without_controls(status.by))
    if words == "starts.queued" and status.position is not None:
        place = texts(f"{words}.position", position=status.position)
        return f"{_sentence(detail)} {place}" if detail else place
    if words == "starts.preparing" and detail:
        image = status.reason in _PULLS
        return texts(f"{words}.text_image", image=detail) if image else _sentence(detail)
    return _sentence(detail) if detail and words in _DETAILED else texts(f"{words}.text")


def _sentence(text: str) -> str:
    """Return somebody's words as a sentence."""
    whole = text[0].upper() + text[1:]
    return whole if whole[-1] in ".!?…" else f"{whole}."
