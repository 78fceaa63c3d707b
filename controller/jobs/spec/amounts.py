"""Amounts as jobs say them: processors, memory, sizes, bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, LiteralString

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from controller.volcano.quantity import (
    Quantity,
    parse_bandwidth,
    parse_cpu,
    parse_memory,
    parse_size,
)


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
