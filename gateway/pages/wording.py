"""What people read of a session that starts, or has ended: plain, short, with the app's name.

All of it is text. Words of others (the scheduler's, a job's name) stand in it as they came, and are
escaped where a page is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.core.access.answers import Refusal, Subject, without_controls
from shared.statuses import Status

_ANY_APP: Final = "Your app"


class Told(NamedTuple):
    """A page's heading, what it says, and what to do next."""

    title: str
    text: str
    advice: str


_AGAIN: Final = "To go on, start it again."
_OVER: Final = "This session has ended."
_BY_ITSELF: Final = "You will be taken there by itself as soon as it is ready."

_ENDS: Final[Mapping[str, Told]] = MappingProxyType(
    {
        "finished": Told("{app} has finished", "Its job ended by itself, without an error.", ""),
        "stopped": Told("{app} was stopped", "Its job was ended on request.", ""),
        "failed": Told("{app} has failed", "Its job ended with an error.", ""),
        "expired": Told(
            "The time of {app} is over", "Its job ran for as long as it was given.", ""
        ),
        "out_of_funds": Told("{app} was stopped", "There are no funds for its job any more.", ""),
        "evicted": Told("{app} was ended by the cluster", "Its place was needed for others.", ""),
        "closed": Told(
            "This session was closed",
            "Its job goes on. Open the session again from where you started it.",
            " ",
        ),
    }
)
_STARTS: Final[Mapping[str, Told]] = MappingProxyType(
    {
        "queued": Told("{app} waits for its turn", "It waits in the queue.", _BY_ITSELF),
        "suspended": Told("{app} is suspended", "It goes on once somebody resumes it.", ""),
        "preparing": Told("{app} is being prepared", "Its container is being made.", _BY_ITSELF),
        "starting": Told("{app} is starting", "Its program does not answer yet.", _BY_ITSELF),
    }
)
_DETAILED: Final = frozenset({"failed", "evicted", "queued"})
"""Phases of which the detail says more than any text of ours."""


def words_of(refusal: Refusal) -> Told | None:
    """Return what there is to say of the session that *refusal* is about; None for nothing new."""
    subject = refusal.subject
    if subject is None or subject.status is None:
        return None
    match refusal.code:
        case "session_ended":
            told = _ENDS.get(subject.status.phase)
            again = _AGAIN
        case "session_starting":
            told, again = _STARTS.get(subject.status.phase), ""
        case _:
            return None
    if told is None:
        return None
    app, text = named(subject) or _ANY_APP, _text(told, subject.status)
    if refusal.code == "session_ended":
        text = f"{_OVER} {text}"
    return Told(told.title.format(app=app), text, told.advice or again)


def named(subject: Subject | None) -> str | None:
    """Return what the app is called, if that is known."""
    name = subject.status.app if subject is not None and subject.status is not None else None
    return without_controls(name) if name else None


def _text(told: Told, status: Status) -> str:
    detail = without_controls(status.detail or "")
    if status.phase == "preparing" and detail:
        return f"Its container is being made from {detail}."
    return _sentence(detail) if detail and status.phase in _DETAILED else told.text


def _sentence(text: str) -> str:
    """Return somebody's words as a sentence."""
    whole = text[0].upper() + text[1:]
    return whole if whole[-1] in ".!?…" else f"{whole}."
