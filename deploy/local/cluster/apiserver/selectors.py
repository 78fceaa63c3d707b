"""Label and field selectors: a predicate from a text, or a 400."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from deploy.local.cluster.apiserver.errors import bad_request
from deploy.local.cluster.apiserver.kinds import Object

Predicate = Callable[[Object], bool]
_Requirement = Callable[[Mapping[str, str]], bool]

_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "status.phase",
    "spec.nodeName",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.kind",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_PLACES: Final = {"source": "source.component"}
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<missing>{_NAME})"
    rf"|(?P<key>{_NAME})\s*(?:(?P<operator>==|=|!=)\s*(?P<value>(?:{_NAME})?)"
    rf"|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)


def make_selector(labels: str, fields: str) -> Predicate:
    """Return a predicate that both selectors must accept.

    Raises:
        ApiError: 400 if one cannot be parsed, or names a field that cannot be selected.
    """
    by_label = [_label_requirement(term) for term in _terms(labels)]
    by_field = [_field_requirement(part) for part in fields.split(",") if part]

    def selected(value: Object) -> bool:
        metadata = value["metadata"]
        own = metadata.get("labels") or {}
        return all(term(own) for term in by_label) and all(term(value) for term in by_field)

    return selected


def equal_labels(labels: str) -> dict[str, str]:
    """Return the labels for which a selector requires one value; it may require others, too."""
    return {
        term["key"]: term["value"]
        for term in _terms(labels)
        if term["operator"] in ("=", "==") and term["value"]
    }


def value_at(value: Object, path: str) -> object:
    """Return the value at the dotted *path*, or None."""
    found: object = value
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _terms(text: str) -> list[re.Match[str]]:
    terms, position = [], 0
    while position < len(text):
        match = _TERM.match(text, position)
        if not match:
            raise bad_request(f"unable to parse requirement: found '{text[position:]}'")
        terms.append(match)
        position = match.end()
    return terms


def _label_requirement(term: re.Match[str]) -> _Requirement:
    if term["absent"]:
        missing = term["missing"]
        return lambda labels: missing not in labels
    key = term["key"]
    if term["set"]:
        values = {value.strip() for value in term["values"].split(",")}
        wanted = term["set"] == "in"
        # `notin` also matches an object without the label, `in` never does.
        return lambda labels: (labels.get(key) in values if key in labels else False) == wanted
    if term["operator"]:
        value, equal = term["value"], term["operator"] != "!="
        return lambda labels: (labels.get(key) == value) == equal
    return lambda labels: key in labels


def _field_requirement(part: str) -> Predicate:
    match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
    if not match:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, value = match.groups()
    if path not in _FIELDS:
        raise bad_request(f"field label not supported: {path}")
    place = _PLACES.get(path, path)
    return lambda item: (str(value_at(item, place) or "") == value) == (operator != "!=")
