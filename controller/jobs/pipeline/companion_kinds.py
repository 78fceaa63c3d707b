"""Kinds of companions: four that every plugin may make, and others that a plugin declares. No I/O.

A declared kind is kept in the store by its API and plural (``policy/v1/poddisruptionbudgets``), by
which its objects can be removed also when the plugin is no longer there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from controller.jobs.pipeline.builder import Companion

OWN_KINDS: Final = frozenset({"Secret", "ConfigMap", "Service", "NetworkPolicy"})
"""What the controller has rights to in every deployment."""

NAMESPACED_VERBS: Final = ("create", "get", "patch", "delete")
"""What the controller must be allowed where jobs run; and ``list``, in the whole cluster."""

_LONGEST_KEY: Final = 63
_API: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?", re.ASCII
)
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]*", re.ASCII)
_CONTROLLERS_OWN: Final = frozenset({"pods", "namespaces", "nodes", "events"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionKind:
    """A namespaced kind whose objects a plugin makes as companions.

    The deployment has to grant the controller :data:`NAMESPACED_VERBS` where jobs run, and ``list``
    in the whole cluster (docs/kubernetes.md).

    Args:
        api_version: Group and version, such as ``policy/v1``.
        kind: The kind, by which companions name it.
        plural: As it stands in paths and roles, such as ``poddisruptionbudgets``.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def key(self) -> str:
        """What the store knows it by."""
        return f"{self.api_version}/{self.plural}"

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    def complete(self, companion: Companion) -> Companion:
        """Return *companion*, of this kind, as it is made and kept."""
        typed: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind}
        return replace(companion, kind=self.key, manifest={**companion.manifest, **typed})


def kind_problems(kinds: object) -> Iterator[str]:
    """Yield what is wrong with the kinds that a plugin declares, as ends of sentences about it."""
    if not isinstance(kinds, tuple | list) or not all(
        isinstance(one, CompanionKind) for one in kinds
    ):
        yield "has companion_kinds that are no tuple of CompanionKind"
        return
    for one in kinds:
        problem = _problem(one)
        if problem:
            yield f"declares companions of the kind {one.kind}, {problem}"
    names = [one.kind for one in kinds]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"declares companions of the kind {name} twice"


def _problem(one: CompanionKind) -> str | None:
    if one.kind in OWN_KINDS and one.group in ("", "networking.k8s.io"):
        return "which need no declaration"
    if one.group.endswith("volcano.sh") or (one.group == "" and one.plural in _CONTROLLERS_OWN):
        return "which are the controller's own"
    for text, pattern, what in (
        (one.api_version, _API, "group and version"),
        (one.kind, _KIND, "kind"),
        (one.plural, _PLURAL, "plural"),
    ):
        if not isinstance(text, str) or not pattern.fullmatch(text):
            return f"whose {what} cannot be {text!r}"
    if len(one.key) > _LONGEST_KEY:
        return f"whose API and plural are longer than {_LONGEST_KEY} characters"
    return None


def complete_companions(
    made: Sequence[Companion], kinds: Sequence[CompanionKind]
) -> dict[int, Companion]:
    """Return those of *made* that are of declared *kinds* as they are kept, by their identity.

    Raises:
        LookupError: If one is neither of these nor of the kinds that every plugin may make.
    """
    declared = {one.kind: one for one in kinds}
    completed = {}
    for companion in made:
        if companion.kind in declared:
            completed[id(companion)] = declared[companion.kind].complete(companion)
        elif companion.kind not in OWN_KINDS:
            text = f"made a {companion.kind}, which is not among its companion_kinds"
            raise LookupError(text[:200])
    return completed
