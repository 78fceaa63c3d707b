"""Typed parameters of a job: their values, and the words that a program receives.

A parameter with a list is repeated: it becomes one word for each value. The path of a file or
directory within the job depends on its mount, so these parameters only have a source (see
``field_types``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from controller.jobs.spec.field_types import Size, VolumePath, check_path, parse_path
from controller.jobs.spec.problems import TAG, make_path
from controller.volcano.quantities import Quantity

LONGEST_VALUE: Final = 32768
"""The limit of one value; Linux accepts at most 128 KiB for one argument."""

MOST_VALUES: Final = 1000
_INT64: Final = 2**63
_HOST: Final = r"^[A-Za-z0-9]([-.A-Za-z0-9]{0,251}[A-Za-z0-9])?$"
LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class Strict(BaseModel):
    """A model with exactly its own fields and their exact types."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        regex_engine="rust-regex",
    )


DataPolicy = Literal["direct", "shared", "staged", "memory"]
"""The access of programs to a file or directory: the original, the original read-only, or a copy
for each pod, on the node's disk or in its memory.
"""

COPIED: Final = frozenset({"staged", "memory"})
"""The policies with a copy for each pod."""

Text = Annotated[str, Field(max_length=LONGEST_VALUE, pattern=r"^[^\x00]*$")]
"""A text that can be an argument or a variable of a process: without NUL."""

LONGEST_PATH: Final = 4096
Path = Annotated[str, Field(max_length=LONGEST_PATH), AfterValidator(check_path)]
"""``/<volume>/<rest>``."""

_Whole = Annotated[int, Field(ge=-_INT64, lt=_INT64)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Secret = Annotated[str, Field(min_length=1, max_length=LONGEST_VALUE, pattern=r"^[^\x00]*$")]
_Many = Field(max_length=MOST_VALUES)
T = TypeVar("T")


def how_many(value: Any) -> str:
    """Return the tag of *value* in the union of an element and a list."""
    return f"{TAG}many" if isinstance(value, list | tuple) else f"{TAG}one"


_OneOrMany: TypeAlias = Annotated[
    Annotated[T, Tag("~one")] | Annotated[list[T], _Many, Tag("~many")],
    Discriminator(how_many),
]
Texts: TypeAlias = _OneOrMany[Text]


class TextParameter(Strict):
    """Any text, or several."""

    type: Literal["text"]
    value: Texts

    def words(self) -> tuple[str, ...]:
        """Return the value as a program receives it."""
        return (self.value,) if isinstance(self.value, str) else tuple(self.value)


class IntegerParameter(Strict):
    """A whole number of 64 bits, or several."""

    type: Literal["integer"]
    value: _OneOrMany[_Whole]

    def words(self) -> tuple[str, ...]:
        """Return the value as a program receives it."""
        return tuple(map(str, self.value if isinstance(self.value, list) else [self.value]))


class FloatingParameter(Strict):
    """A finite number, or several; ``1`` equals ``1.0``."""

    type: Literal["floating"]
    value: _OneOrMany[_Finite]

    def words(self) -> tuple[str, ...]:
        """Return the value as a program receives it: the shortest text that reads back."""
        return tuple(map(repr, self.value if isinstance(self.value, list) else [self.value]))


class BooleanParameter(Strict):
    """True or false."""

    type: Literal["boolean"]
    value: bool

    def words(self) -> tuple[str, ...]:
        """Return the value as a program receives it."""
        return ("true" if self.value else "false",)


class EnumerationParameter(Strict):
    """One of several texts, or several of them."""

    type: Literal["enumeration"]
    value: Texts
    options: Annotated[list[Text], Field(min_length=1, max_length=MOST_VALUES)]

    @model_validator(mode="after")
    def _is_an_option(self) -> EnumerationParameter:
        if not set(self.words()) <= set(self.options):
            raise ValueError("the value is not one of the options")
        return self

    def words(self) -> tuple[str, ...]:
        """Return the value as a program receives it."""
        return (self.value,) if isinstance(self.value, str) else tuple(self.value)


class SecretParameter(Strict):
    """A text that is never returned, and reaches the program through a Secret."""

    type: Literal["secret"]
    value: _Secret = Field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file that a job names: ``at`` is its path in the job, ``source`` its place in a volume.

    ``parameter`` names it, and ``name`` is its name within the job; the output folder has neither.
    """

    at: str
    source: VolumePath
    kind: Literal["file", "directory"]
    parameter: str = ""
    name: str | None = None
    read_only: bool = False
    policy: DataPolicy = "direct"
    size_limit: Quantity | None = None

    @property
    def is_copied(self) -> bool:
        """Whether each pod has a copy of it."""
        return self.policy in COPIED


class _Mounted(Strict):
    path: _OneOrMany[Path]
    read_only: bool = False
    policy: DataPolicy = "direct"
    size_limit: Size | None = None

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if (self.size_limit is not None) != (self.policy in COPIED):
            how = "is missing" if self.size_limit is None else "is only for what is copied"
            raise ValueError(f"size_limit {how}: with the policy staged or memory")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The sources; several if the parameter is repeated."""
        return (self.path,) if isinstance(self.path, str) else tuple(self.path)

    def files(self, name: str) -> Iterator[JobFile]:
        """Yield the files of the parameter, which is called *name*."""
        path = make_path(["parameters", name, "path"])
        for index, raw in enumerate(self.paths):
            source = parse_path(raw)
            yield JobFile(
                at=path if isinstance(self.path, str) else f"{path}[{index}]",
                source=source,
                kind="file" if isinstance(self, FileParameter) else "directory",
                parameter=name,
                name=source.basename,
                # Shared data must not be changed, and changes of a copy would be lost.
                read_only=self.read_only or self.policy != "direct",
                policy=self.policy,
                size_limit=self.size_limit,
            )


class FileParameter(_Mounted):
    """An existing file, or several; a program receives its mount path."""

    type: Literal["file"]


class DirectoryParameter(_Mounted):
    """An existing directory, or several; a program receives its mount path."""

    type: Literal["directory"]


class ArtefactsParameter(Strict):
    """The artefacts of a predecessor of the job: the folder ``artefacts`` of its output, read-only.

    A program receives the mount path. ``path`` is the folder's place in the volume. The place is
    resolved when the job is accepted, and stored, since the predecessor's record may be deleted
    before the submission.
    """

    type: Literal["artefacts"]
    job: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]
    path: Path | None = None

    def files(self, name: str) -> Iterator[JobFile]:
        """Yield the folder of the parameter *name*, once it is known."""
        if self.path is not None:
            yield JobFile(
                at=make_path(["parameters", name, "job"]),
                source=parse_path(self.path),
                kind="directory",
                parameter=name,
                name=self.job,
                read_only=True,
            )


class PeerParameter(Strict):
    """Another job, which is reached under ``hostname``; a program receives that name.

    ``ports`` are ports of its first rank; by default the ports that the job declares.
    """

    type: Literal["peer"]
    job: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]
    hostname: Annotated[str, Field(pattern=LABEL_PATTERN)]
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=list, max_length=32)

    def words(self) -> tuple[str, ...]:
        """Return the value as a program receives it."""
        return (self.hostname,)


def _host(value: str) -> str:
    if ":" in value:
        # A host with a colon is an IPv6 address, which needs brackets.
        return ipaddress.IPv6Address(value).compressed
    return value


class LicenceParameter(Strict):
    """A licence server, and the key for it, which is a secret: ``address:port/key``."""

    type: Literal["licence"]
    address: Annotated[
        str, Field(pattern=rf"(?:{_HOST})|(?:^[0-9a-fA-F:.]{{2,45}}$)"), AfterValidator(_host)
    ]
    port: Annotated[int, Field(ge=1, le=65535)]
    key: _Secret | None = Field(default=None, repr=False)

    def words(self) -> tuple[str, ...]:
        """Return the server, without the key."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return (f"{host}:{self.port}",)


def _type_of(value: Any) -> str | None:
    if isinstance(value, BaseModel):
        return f"{TAG}{getattr(value, 'type', '')}"
    kind = value.get("type") if isinstance(value, dict) else None
    return f"{TAG}{kind}" if isinstance(kind, str) else None


Parameter = Annotated[
    Annotated[TextParameter, Tag("~text")]
    | Annotated[IntegerParameter, Tag("~integer")]
    | Annotated[FloatingParameter, Tag("~floating")]
    | Annotated[BooleanParameter, Tag("~boolean")]
    | Annotated[EnumerationParameter, Tag("~enumeration")]
    | Annotated[SecretParameter, Tag("~secret")]
    | Annotated[FileParameter, Tag("~file")]
    | Annotated[DirectoryParameter, Tag("~directory")]
    | Annotated[ArtefactsParameter, Tag("~artefacts")]
    | Annotated[PeerParameter, Tag("~peer")]
    | Annotated[LicenceParameter, Tag("~licence")],
    Discriminator(
        _type_of,
        custom_error_type="parameter_type",
        custom_error_message=(
            "type must be one of text, integer, floating, boolean, enumeration, secret, file, "
            "directory, artefacts, peer, licence"
        ),
    ),
]

SECRET_FIELDS: Final = {"secret": "value", "licence": "key"}
"""The secret field of each parameter type."""


def secret_of(parameter: Parameter) -> str | None:
    """Return the secret value of *parameter*; None if it has none."""
    match parameter:
        case SecretParameter():
            return parameter.value
        case LicenceParameter():
            return parameter.key
        case _:
            return None
