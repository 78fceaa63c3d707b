"""What plugins of other packages declare as pydantic models: own settings, and own job fields.

Both are checked before the plugin sees them: settings when the process starts, fields when a job
is accepted. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

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
