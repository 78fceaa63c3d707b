"""The rules of every object's metadata, and the fields that only the server writes."""

import re
from collections.abc import Iterator
from typing import Final

from deploy.local.cluster.apiserver.errors import Problem, bad_request
from deploy.local.cluster.apiserver.kinds import Kind, Object

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ANNOTATION_BYTES: Final = 262_144
_SERVER_WRITES: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_STRINGS: Final = ("labels", "annotations")

_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NAMED_AS_LABELS: Final = frozenset({("", "namespaces"), ("", "services")})
_STANDARD_FINALIZERS: Final = ("orphan", "foregroundDeletion", "kubernetes")
_PATHS: Final = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})


def check_shape(kind: Kind, metadata: object) -> None:
    """Refuse metadata with types that no server could decode.

    Raises:
        ApiError: 400.
    """
    where = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    if not isinstance(metadata, dict):
        raise bad_request(f"{where}: metadata must be an object")
    for name in ("name", "namespace", "generateName", "resourceVersion", "uid"):
        if not isinstance(metadata.get(name, ""), str):
            raise bad_request(
                f"{where}: json: cannot unmarshal {json_type(metadata[name])} into Go struct "
                f"field ObjectMeta.metadata.{name} of type string"
            )
    for name in _STRINGS:
        for value in _entries(where, metadata, name):
            if not isinstance(value, str):
                raise bad_request(
                    f"{where}: json: cannot unmarshal {json_type(value)} into Go struct field "
                    f"ObjectMeta.metadata.{name} of type string"
                )
    for name in ("finalizers", "ownerReferences"):
        if not isinstance(metadata.get(name) or [], list):
            raise bad_request(f"{where}: metadata.{name} must be a list")


def problems(kind: Kind, metadata: Object) -> Iterator[Problem]:
    """Yield the problems with names, labels, annotations, finalizers and owners."""
    yield from _name_problems(kind, metadata.get("name", ""))
    yield from label_problems("metadata.labels", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _key_problems("metadata.annotations", key)
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > _ANNOTATION_BYTES:
        yield Problem(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {_ANNOTATION_BYTES} bytes",
        )
    for owner in metadata.get("ownerReferences") or []:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not (isinstance(owner, dict) and owner.get(field)):
                why = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield Problem.invalid(f"metadata.ownerReferences.{field}", "", why)
    for position, finalizer in enumerate(metadata.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield Problem.invalid(f"metadata.finalizers[{position}]", finalizer, why)


def clean_new(kind: Kind, metadata: Object) -> Object:
    """Return *metadata* of an object to be created, without the fields that the server writes."""
    dropped = {*_SERVER_WRITES, "managedFields", "selfLink", "resourceVersion"}
    if not kind.generation:
        dropped.discard("generation")  # the server does not count it, so it does not remove it
    return {k: v for k, v in metadata.items() if k not in dropped and v is not None}


def carried_over(old: Object, new: Object) -> Object:
    """Return *new* metadata with the fields that the server writes taken from *old*."""
    kept = {k: v for k, v in new.items() if v is not None and k != "managedFields"}
    for name in (*_SERVER_WRITES, "name", "namespace", "generateName", "resourceVersion"):
        if name in old:
            kept[name] = old[name]
        else:
            kept.pop(name, None)
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not kept.get(name):
            kept.pop(name, None)
    return kept


def finalizer_problems(old: Object, new: Object) -> Iterator[Problem]:
    """Yield the finalizers that were added to an object that is being deleted."""
    if not old.get("deletionTimestamp"):
        return
    added = [f for f in new.get("finalizers") or [] if f not in (old.get("finalizers") or [])]
    if added:
        names = ", ".join(f'"{name}"' for name in added)
        yield Problem.forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new "
            f"finalizers []string{{{names}}}",
        )


def _name_problems(kind: Kind, name: str) -> Iterator[Problem]:
    if not name:
        yield Problem.required("metadata.name", "name or generateName is required")
        return
    if kind.plural in _PATHS:
        return
    yield from name_problems("metadata.name", name, label=kind.key in _NAMED_AS_LABELS)


def name_problems(field: str, name: str, *, label: bool) -> Iterator[Problem]:
    """Yield the problems with a name that must be a DNS label, or else a DNS subdomain."""
    pattern, rule = (_LABEL, LABEL_RULE) if label else (_SUBDOMAIN, _SUBDOMAIN_RULE)
    longest = 63 if label else 253
    if len(name) > longest:
        rule = f"must be no more than {longest} characters"
    elif label and "." in name:
        rule = "must not contain dots"
    if len(name) > longest or not pattern.fullmatch(name):
        yield Problem.invalid(field, name, rule)


def label_problems(field: str, labels: Object) -> Iterator[Problem]:
    """Yield the problems with labels, or with a selector's labels."""
    for key, value in labels.items():
        yield from _key_problems(field, key)
        if value and len(value) > 63:
            yield Problem.invalid(field, value, "must be no more than 63 bytes")
        elif value and not _QUALIFIED.fullmatch(value):
            yield Problem.invalid(field, value, _VALUE_RULE)


def _key_problems(field: str, key: str) -> Iterator[Problem]:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        yield Problem.invalid(field, key, f"prefix part {_SUBDOMAIN_RULE}")
    if len(name) > 63:
        yield Problem.invalid(field, key, "name part must be no more than 63 bytes")
    elif not _QUALIFIED.fullmatch(name):
        yield Problem.invalid(field, key, _KEY_RULE)


def _entries(where: str, metadata: Object, name: str) -> list[object]:
    entries = metadata.get(name) or {}
    if not isinstance(entries, dict):
        raise bad_request(
            f"{where}: json: cannot unmarshal {json_type(entries)} into Go struct field "
            f"ObjectMeta.metadata.{name} of type map[string]string"
        )
    return list(entries.values())


def json_type(value: object) -> str:
    """Return the name of a JSON value's type in Go's decoder."""
    names = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    return names.get(type(value), "object")
