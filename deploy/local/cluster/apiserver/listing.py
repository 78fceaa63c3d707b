"""The query of a list or a watch, and the pages of a list."""

import base64
from collections.abc import Mapping
from typing import Final, Self

import msgspec

from deploy.local.cluster.apiserver.errors import (
    ApiError,
    Problem,
    bad_request,
    expired_list,
    invalid_options,
)
from deploy.local.cluster.apiserver.kinds import Object
from deploy.local.cluster.apiserver.requests import is_true
from deploy.local.cluster.apiserver.store import Stored

_MATCHES: Final = ("", "Exact", "NotOlderThan")
_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 - no secret
NOW: Final = -1
"""The revision of a token that continues with the present objects."""


def check_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Refuse a query that no server would accept (apimachinery, ``ValidateListOptions``).

    Raises:
        ApiError: 400 for what is no number, 422 for options that exclude each other.
    """
    for name in ("limit", "timeoutSeconds"):
        _number(query.get(name) or "0", "ParseInt")
    match, initial = query.get("resourceVersionMatch", ""), query.get("sendInitialEvents")
    problem: Problem | None = None
    if initial is not None:
        if not watch:
            problem = Problem.forbidden(
                "sendInitialEvents", "sendInitialEvents is forbidden for list"
            )
        elif match != "NotOlderThan":
            problem = Problem.forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
    elif match and watch:
        problem = Problem.forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    elif match and not query.get("resourceVersion"):
        problem = Problem.forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )
    elif match not in _MATCHES:
        problem = Problem.unsupported("resourceVersionMatch", match, _MATCHES)
    if problem:
        raise invalid_options("ListOptions", problem)


def wants_initial_events(query: Mapping[str, str]) -> bool:
    """Whether a watch begins with the present objects, followed by a bookmark."""
    return is_true(query.get("sendInitialEvents"))


def revision_of(text: str) -> int:
    """Return the number of a resourceVersion.

    Raises:
        ApiError: 500, in the words of a real server's watch.
    """
    try:
        return _number(text or "0", "ParseUint")
    except ApiError as error:
        why = f'resourceVersion: Invalid value: "{text}": {error.message}'
        raise ApiError(500, why, reason="") from error


class Page(msgspec.Struct, frozen=True):
    """A position in a list. All pages of the list show one revision.

    The token is that of a real server: the revision, and the key after which to continue.
    """

    v: str
    rv: int
    start: str

    @classmethod
    def of(cls, revision: int, place: tuple[str, str] = ("", "")) -> Self:
        """Return the page after *place*."""
        return cls(_TOKEN_VERSION, revision, "\0".join(place))

    @classmethod
    def asked(cls, query: Mapping[str, str], namespace: str, current: int) -> Self:
        """Return the page that *query* requests.

        Raises:
            ApiError: 400 for an invalid token or revision, or both given; 504 for a revision that
                does not exist yet.
        """
        token, version = query.get("continue", ""), query.get("resourceVersion", "")
        if token:
            if version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            return cls._read(token, namespace, current)
        try:
            revision = revision_of(version)
        except ApiError as error:
            raise bad_request(f"invalid resource version: {error.message}") from error
        if revision > current:
            raise ApiError(
                504,
                f"Timeout: Too large resource version: {revision}, current: {current}",
                details={
                    "causes": [
                        {
                            "reason": "ResourceVersionTooLarge",
                            "message": "Too large resource version",
                        }
                    ],
                    "retryAfterSeconds": 1,
                },
                headers={"Retry-After": "1"},
            )
        exact = query.get("resourceVersionMatch") == "Exact"
        return cls.of(revision if exact else current)

    @classmethod
    def _read(cls, token: str, namespace: str, current: int) -> Self:
        try:
            padded = token + "=" * (-len(token) % 4)
            page = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise bad_request(f"continue key is not valid: unable to decode: {error}") from error
        # The key in a list of one namespace is only the name.
        start = page.start if page.start.count("\0") == 1 and page.start[-1] != "\0" else ""
        if not start:
            start = f"{namespace}\0{page.start.rstrip(chr(0))}"
        return cls(page.v, current if page.rv == NOW else page.rv, start)

    @property
    def token(self) -> str:
        """The token with which a client gets this page."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @property
    def place(self) -> tuple[str, str]:
        """The namespace and the name after which the page begins."""
        namespace, _, name = self.start.partition("\0")
        return namespace, name

    def expired(self) -> ApiError:
        """Return the 410 of this page. Its token continues, but with the objects at that time."""
        return expired_list(Page(self.v, NOW, self.start).token)

    def cut(self, items: list[Stored], limit: str) -> tuple[list[Stored], Object]:
        """Return the *items* of this page, and the metadata for the next page."""
        rest = [item for item in items if item.place > self.place]
        count = int(limit or "0")
        count = count if count > 0 else len(rest)
        metadata: Object = {"resourceVersion": str(self.rv)}
        if len(rest) > count:
            metadata["continue"] = Page.of(self.rv, rest[count - 1].place).token
            metadata["remainingItemCount"] = len(rest) - count
        return rest[:count], metadata


def _number(text: str, function: str) -> int:
    digits = text.removeprefix("-") if function == "ParseInt" else text
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f'strconv.{function}: parsing "{text}": invalid syntax')
    return int(text)
