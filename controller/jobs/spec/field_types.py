"""Types of job fields: names, quantities, paths ``/<volume>/<rest>``, and plain JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, LiteralString

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from controller.volcano.names import ID_PATTERN, TASK_PATTERN
from controller.volcano.quantities import (
    Quantity,
    parse_bandwidth,
    parse_cpu,
    parse_memory,
    parse_size,
)

TOOL_ID_PATTERN: Final = r"^tool\.[0-9a-f]{24}$"
"""The pattern of a tool run's identifier. A job's identifier has no dot."""
ENDPOINT_PATTERN: Final = r"^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$"
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
LINK_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
QUALIFIED_NAME: Final = (
    r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$"
)
"""Of a resource or a label, with an optional domain before it."""
MOST_REPLICAS: Final = 1000

JobId = Annotated[str, Field(pattern=ID_PATTERN)]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][-A-Za-z0-9_]{0,62}$")]
FilledIn = Annotated[
    str, Field(pattern=r"^(framework|parameters\.[A-Za-z_][-A-Za-z0-9_]{0,62}(\.path)?)$")
]
"""The fields of a job that can be filled in at its acceptance."""
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EndpointName = Annotated[str, Field(pattern=ENDPOINT_PATTERN)]
ToolName = Annotated[str, Field(pattern=ENDPOINT_PATTERN)]
TaskName = Annotated[str, Field(pattern=TASK_PATTERN)]
SiteName = Annotated[str, Field(pattern=NAME_PATTERN)]
"""A name that the deployment declares: a product, queue, priority, runtime or credential."""
FrameworkName = Literal["pytorch", "mpi", "tensorflow", "ray"]
Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9][-._:/@A-Za-z0-9]{0,511}$")]
Replicas = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]
Port = Annotated[int, Field(ge=1, le=65535)]
BasePath = Annotated[str, Field(max_length=1024, pattern=r'^/[!-"$->@-\[\]-~]*$')]
PluginName = Annotated[str, Field(pattern=r"^[a-z][_a-z0-9]{0,39}$")]


def _cpu(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("cpu", "should be a number or a quantity such as 500m")
    return _quantity(parse_cpu, f"{value:f}" if isinstance(value, float) else str(value))


def _text(parse: Callable[[str], Quantity], kind: str, problem: LiteralString) -> PlainValidator:
    def read(value: Any) -> Quantity:
        if isinstance(value, Quantity):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError(kind, problem)
        return _quantity(parse, value)

    return PlainValidator(read)


def _quantity(parse: Callable[[str], Quantity], raw: str) -> Quantity:
    try:
        return parse(raw)
    except ValueError as error:
        raise PydanticCustomError("quantity", "{why}", {"why": str(error)}) from None


Cpu = Annotated[
    Quantity,
    PlainValidator(_cpu),
    PlainSerializer(str),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]
_STRING = WithJsonSchema({"type": "string"})
Memory = Annotated[
    Quantity,
    _text(parse_memory, "memory", "should be a quantity such as 2Gi"),
    PlainSerializer(str),
    _STRING,
]
Bandwidth = Annotated[
    Quantity,
    _text(parse_bandwidth, "bandwidth", "should be bits per second, such as 100M"),
    PlainSerializer(str),
    _STRING,
]
Size = Annotated[
    Quantity,
    _text(parse_size, "size", "should be a quantity such as 20Gi"),
    PlainSerializer(str),
    _STRING,
]


_LONGEST_PART: Final = 255


@dataclass(frozen=True, slots=True)
class VolumePath:
    """A place in a volume; ``rest`` is empty for the volume itself."""

    volume: str
    rest: tuple[str, ...]

    @property
    def basename(self) -> str:
        """The file's name within the job."""
        return self.rest[-1] if self.rest else self.volume

    @property
    def sub_path(self) -> str:
        """The path within the volume."""
        return "/".join(self.rest)

    def __str__(self) -> str:
        """Return the canonical form, so that one place has one name."""
        return "/".join(["", self.volume, *self.rest])


def parse_path(raw: str) -> VolumePath:
    """Return the place that *raw* names; a single slash at its end is ignored.

    Raises:
        ValueError: If it does not begin with a volume, has a ``..``, or a part that is no file
            name.
    """
    if not raw.startswith("/"):
        raise ValueError("a path must be /<volume>/<rest>")
    parts = raw[1:].removesuffix("/").split("/")
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError("a path must not have an empty part, . or ..")
        if len(part.encode()) > _LONGEST_PART:
            raise ValueError(f"a part of the path is longer than {_LONGEST_PART} bytes")
        if any(ord(c) < 32 or ord(c) == 127 for c in part):
            raise ValueError("a path must not have control characters")
    return VolumePath(parts[0], tuple(parts[1:]))


def check_path(raw: str) -> str:
    """Return *raw* in the canonical form.

    Raises:
        ValueError: If it is no path.
    """
    return str(parse_path(raw))


def place_of(name: str, working_directory: str) -> str:
    """Return where *name* is mounted: in the working directory."""
    return f"{working_directory.rstrip('/')}/{name}"


LONGEST_FIELDS: Final = 4096
"""Of a job's fields for one plugin, as JSON: they are in an annotation, and all annotations of a
VolcanoJob together have 256 KiB.
"""
DEEPEST_FIELDS: Final = 16


def _plain_json(value: dict[str, Any]) -> dict[str, Any]:
    """Return *value* if every store and annotation can hold it: plain, flat, short."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > DEEPEST_FIELDS:
            raise ValueError(f"is nested deeper than {DEEPEST_FIELDS} levels")
        if isinstance(part, dict):
            waiting += [(inner, depth + 1) for inner in (*part, *part.values())]
        elif isinstance(part, list):
            waiting += [(inner, depth + 1) for inner in part]
        elif isinstance(part, str):
            check_text(part)
        elif isinstance(part, float) and not math.isfinite(part):
            raise ValueError("contains a number that is not finite")
        elif not isinstance(part, int | float | None):
            raise ValueError("is no JSON")
    if len(json.dumps(value)) > LONGEST_FIELDS:
        raise ValueError(f"is longer than {LONGEST_FIELDS} bytes")
    return value


def check_text(text: str) -> None:
    """Check that every store and process accepts *text*.

    Raises:
        ValueError: If they do not.
    """
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("contains a text with NUL, or that is not valid Unicode")


PluginFields = Annotated[dict[str, Any], AfterValidator(_plain_json)]
"""A job's fields for a plugin; the model of the plugin validates them further."""
