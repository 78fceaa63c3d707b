"""Amounts as jobs say them: processors, memory, sizes, bandwidth."""

from __future__ import annotations

from typing import Annotated, Any

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


def _memory(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("memory", "should be a quantity such as 2Gi")
    return _quantity(parse_memory, value)


def _bandwidth(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("bandwidth", "should be bits per second, such as 100M")
    return _quantity(parse_bandwidth, value)


def _size(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("size", "should be a quantity such as 20Gi")
    return _quantity(parse_size, value)


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
Bandwidth = Annotated[
    Quantity, PlainValidator(_bandwidth), PlainSerializer(str), WithJsonSchema({"type": "string"})
]
Size = Annotated[
    Quantity, PlainValidator(_size), PlainSerializer(str), WithJsonSchema({"type": "string"})
]
