"""The job that an orchestrator asks for: what it may say, and how it is refused.

A field is taken where a plugin does something with it (see ``Pipeline.offered_fields``): what
nobody would carry out is refused as unknown, never dropped. docs/controller-api.md is the
contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from controller.jobs.parameters import Parameter, SecretParameter, Strict, Text
from controller.jobs.problems import TAG
from controller.volcano.quantity import Quantity, parse_cpu, parse_memory

ID_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
ENDPOINT_PATTERN: Final = r"^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$"
DEFAULT_TASK: Final = "job"
MOST_REPLICAS: Final = 1000

JobId = Annotated[str, Field(pattern=ID_PATTERN)]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][-A-Za-z0-9_]{0,62}$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EndpointName = Annotated[str, Field(pattern=ENDPOINT_PATTERN)]
Port = Annotated[int, Field(ge=1, le=65535)]
BasePath = Annotated[str, Field(max_length=1024, pattern=r'^/[!-"$->@-\[\]-~]*$')]


def _cpu(value: Any) -> Quantity:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("cpu", "should be a number or a quantity such as 500m")
    return _quantity(parse_cpu, f"{value:f}" if isinstance(value, float) else str(value))


def _memory(value: Any) -> Quantity:
    if not isinstance(value, str):
        raise PydanticCustomError("memory", "should be a quantity such as 2Gi")
    return _quantity(parse_memory, value)


def _quantity(parse: Any, raw: str) -> Quantity:
    try:
        parsed: Quantity = parse(raw)
    except ValueError as error:
        raise PydanticCustomError("quantity", "{why}", {"why": str(error)}) from None
    return parsed


Cpu = Annotated[
    Quantity,
    PlainValidator(_cpu),
    PlainSerializer(str),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]
Memory = Annotated[
    Quantity, PlainValidator(_memory), PlainSerializer(str), WithJsonSchema({"type": "string"})
]


class Owner(Strict):
    """Whose job it is: a user's, within a project or not."""

    user: Name
    project: Name | None = None


class Resources(Strict):
    """What each replica gets: its requests and its limits alike."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    gpu: Annotated[int, Field(ge=0, le=1024)] | None = None


class ParameterRef(Strict):
    """Where the value of a parameter goes; ``prefix`` stands directly before it."""

    parameter: ParameterName
    prefix: Text = ""


def _word_tag(value: Any) -> str:
    return f"{TAG}literal" if isinstance(value, str) else f"{TAG}reference"


Word = Annotated[
    Annotated[Text, Tag("~literal")] | Annotated[ParameterRef, Tag("~reference")],
    Discriminator(_word_tag),
]


class Invocation(Strict):
    """The program and its environment. Without ``command`` the image's own program runs."""

    command: list[Word] = Field(default_factory=list, max_length=1000)
    environment: dict[VariableName, Word] = Field(default_factory=dict, max_length=1000)


class PasswordRef(Strict):
    """The secret parameter that holds a password."""

    parameter: ParameterName


class Endpoint(Strict):
    """A port on which the job serves people, in every rank of its task."""

    kind: Literal["web", "vnc"]
    port: Port
    base_path: BasePath = "/"
    task: str | None = None
    password: PasswordRef | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind != "vnc" and self.password is not None:
            raise ValueError("only a vnc endpoint has a password")
        if self.kind != "web" and self.base_path != "/":
            raise ValueError("only a web endpoint has a base_path")
        return self


class Job(Strict):
    """A job as accepted."""

    id: JobId
    owner: Owner
    name: Name | None = None
    labels: dict[LabelName, LabelValue] = Field(default_factory=dict, max_length=64)
    image: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-._:/@A-Za-z0-9]{0,511}$")]
    resources: Resources = Resources()
    replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 1
    invocation: Invocation = Invocation()
    parameters: dict[ParameterName, Parameter] = Field(default_factory=dict, max_length=1000)
    interactive: dict[EndpointName, Endpoint] = Field(default_factory=dict, max_length=16)

    @property
    def tasks(self) -> tuple[TaskRanks, ...]:
        """The tasks and the ranks of their replicas, which count over all of them in order."""
        return (TaskRanks(DEFAULT_TASK, 0, self.replicas),)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(task.replicas for task in self.tasks)

    def rank_of(self, task: str, index: int) -> int | None:
        """Return the rank of the task's replica, None where the job has no such one."""
        for one in self.tasks:
            if one.name == task and 0 <= index < one.replicas:
                return one.first + index
        return None

    def task_of(self, rank: int) -> str | None:
        """Return the name of the task that the rank belongs to."""
        for one in self.tasks:
            if one.first <= rank < one.first + one.replicas:
                return one.name
        return None

    def secrets(self) -> dict[str, str]:
        """Return the values of the secret parameters by name."""
        return {name: one.value for name, one in self._secret_parameters()}

    def _secret_parameters(self) -> Iterator[tuple[str, SecretParameter]]:
        for name, parameter in self.parameters.items():
            if isinstance(parameter, SecretParameter):
                yield name, parameter


@dataclass(frozen=True, slots=True)
class TaskRanks:
    """A task's replicas: their ranks are ``first`` and following."""

    name: str
    first: int
    replicas: int


BASE_FIELDS: Final = frozenset({"id", "owner", "name", "labels"})
"""Fields of a job that need no plugin: they say whose it is and how it is found."""


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of what *model* takes, its definitions under ``$defs``."""
    return model.model_json_schema(mode="validation")
