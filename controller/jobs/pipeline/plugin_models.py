"""Declarations of third-party plugins: settings, job fields, and kinds of companions. No I/O.

Settings are checked when the process starts, fields when a job is accepted.

Every plugin may create four kinds of companions. A plugin declares further kinds. The store
identifies a declared kind by its API and plural (``policy/v1/poddisruptionbudgets``), so that its
objects can be deleted after the plugin is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.jobs.pipeline.border import BadResult
from controller.jobs.pipeline.builder import Companion
from controller.jobs.spec.problems import JobRejected, Problem, problems_of

_REF: Final = "#/$defs/"
_HIDDEN: Final = "writeOnly"  # how pydantic describes SecretStr and SecretBytes


class PluginSettings(BaseModel):
    """A plugin's own settings: each field is read from ``FUMAROLE_PLUGIN_<NAME>_<FIELD>``.

    A value is converted to the type of its field. A list is separated by commas, or JSON; an object
    is JSON. A field of the type ``SecretStr`` is in no log and no error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def __repr__(self) -> str:
        # A URL in a plain field may contain a password.
        return f"{type(self).__name__}({', '.join(sorted(self.model_fields_set))})"

    __str__ = __repr__


class JobFields(BaseModel):
    """A plugin's own fields of a job, under ``plugins.<name>``.

    They are JSON of exactly the fields' types. They are stored and shown with the job, and written
    into an annotation of its VolcanoJob, so they must not be secret. A field that a later release
    adds needs a default: jobs that were accepted before lack it.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


S = TypeVar("S", bound=PluginSettings)
F = TypeVar("F", bound=JobFields)


def read_job_fields(model: type[F], plugin: str, given: Mapping[str, Any]) -> F:
    """Return the job's fields for *plugin*.

    Raises:
        JobRejected: With every problem, at its path in the job.
    """
    try:
        # As JSON, in which a date or an enumeration is a string.
        return model.model_validate_json(json.dumps(given))
    except ValidationError as error:
        raise JobRejected(one.under(f"plugins.{plugin}") for one in problems_of(error)) from None


def setting_names(plugin: str, model: type[PluginSettings]) -> dict[str, str]:
    """Return the setting of each field."""
    return {field: f"FUMAROLE_PLUGIN_{plugin}_{field}".upper() for field in model.model_fields}


def read_plugin_settings(
    model: type[PluginSettings], given: Mapping[str, str]
) -> PluginSettings | list[Problem]:
    """Return the settings, or the problems, with fields as paths and without secrets.

    Args:
        model: The model that the plugin declares.
        given: The values that are set, by field.
    """
    schema = model.model_json_schema(mode="validation")
    values = {name: _read(text, schema["properties"][name], schema) for name, text in given.items()}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        secrets = [given[name] for name in secret_fields(model) if given.get(name)]
        return [Problem(one.path, _masked(one.message, secrets)) for one in problems_of(error)]


def secret_fields(model: type[BaseModel]) -> list[str]:
    """Return the fields that contain a secret at any depth."""
    schema = model.model_json_schema(mode="validation")
    return [
        name
        for name, field in schema.get("properties", {}).items()
        if any(part.get(_HIDDEN) for part in _parts(field, schema))
    ]


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _read(text: str, field: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Return *text* in the form that the field's type accepts."""
    kinds = {part.get("type") for part in _parts(field, schema, into=False)}
    if kinds & {"array", "object"} and text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if "array" in kinds and "string" not in kinds:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _parts(
    field: Mapping[str, Any], schema: Mapping[str, Any], *, into: bool = True
) -> Iterator[Mapping[str, Any]]:
    """Yield *field* and its alternatives; with *into*, also what is within them."""
    waiting, seen = [field], set[str]()
    while waiting:
        part = waiting.pop()
        yield part
        reference = part.get("$ref")
        if reference is not None and reference not in seen:
            seen.add(reference)
            waiting.append(schema["$defs"][reference.removeprefix(_REF)])
        for key in ("anyOf", "oneOf", "allOf", *(("prefixItems",) if into else ())):
            waiting += part.get(key, [])
        if into:
            waiting += part.get("properties", {}).values()
            for key in ("items", "additionalProperties"):
                if isinstance(part.get(key), dict):
                    waiting.append(part[key])


# Kinds of companions


OWN_KINDS: Final = frozenset({"Secret", "ConfigMap", "Service", "NetworkPolicy"})
"""Kinds that the controller may create in every deployment."""

NAMESPACED_VERBS: Final = ("create", "get", "patch", "delete")
"""Verbs that the controller needs where jobs run; and ``list`` in the whole cluster."""

_LONGEST_KEY: Final = 63
_API: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?", re.ASCII
)
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]*", re.ASCII)
_CONTROLLERS_OWN: Final = frozenset({"pods", "namespaces", "nodes", "events"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionKind:
    """A namespaced kind of companions that a plugin declares.

    The deployment has to grant the controller :data:`NAMESPACED_VERBS` where jobs run, and ``list``
    in the whole cluster (docs/kubernetes.md).

    Args:
        api_version: Group and version, such as ``policy/v1``.
        kind: The kind, by which companions name it.
        plural: The plural in paths and roles, such as ``poddisruptionbudgets``.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def key(self) -> str:
        """The key in the store."""
        return f"{self.api_version}/{self.plural}"

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    def complete(self, companion: Companion) -> Companion:
        """Return *companion*, of this kind, in its stored form."""
        typed: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind}
        return replace(companion, kind=self.key, manifest={**companion.manifest, **typed})


def kind_problems(kinds: object) -> Iterator[str]:
    """Yield the problems of declared kinds, as ends of sentences about the plugin."""
    if not isinstance(kinds, tuple | list) or not all(
        isinstance(one, CompanionKind) for one in kinds
    ):
        yield "has companion_kinds that are no tuple of CompanionKind"
        return
    for one in kinds:
        problem = _kind_problem(one)
        if problem:
            yield f"declares companions of the kind {one.kind}, {problem}"
    names = [one.kind for one in kinds]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"declares companions of the kind {name} twice"


def _kind_problem(one: CompanionKind) -> str | None:
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
    """Return the objects of *made* with declared *kinds* in their stored form, by identity.

    Raises:
        BadResult: If an object has another kind that not every plugin may create.
    """
    declared = {one.kind: one for one in kinds}
    completed = {}
    for companion in made:
        if companion.kind in declared:
            completed[id(companion)] = declared[companion.kind].complete(companion)
        elif companion.kind not in OWN_KINDS:
            text = f"made a {companion.kind}, which is not among its companion_kinds"
            raise BadResult(text[:200])
    return completed
