"""Typed parameters of a job: what each takes, and how it is written for a program."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from controller.jobs.problems import TAG

LONGEST_VALUE: Final = 32768
"""Of one value. Linux takes at most 128 KiB for one argument."""

_INT64: Final = 2**63


class Strict(BaseModel):
    """Takes its own fields, of exactly their types, and nothing else."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        regex_engine="rust-regex",
    )


Text = Annotated[str, Field(max_length=LONGEST_VALUE, pattern=r"^[^\x00]*$")]
"""What can be an argument or a variable of a process: anything but NUL."""


class TextParameter(Strict):
    """Any text."""

    type: Literal["text"]
    value: Text

    def written(self) -> str:
        """Return the value as a program receives it."""
        return self.value


class IntegerParameter(Strict):
    """A whole number of 64 bits."""

    type: Literal["integer"]
    value: Annotated[int, Field(ge=-_INT64, lt=_INT64)]

    def written(self) -> str:
        """Return the value as a program receives it."""
        return str(self.value)


class FloatingParameter(Strict):
    """A finite number; ``1`` is as good as ``1.0``."""

    type: Literal["floating"]
    value: Annotated[float, Field(allow_inf_nan=False)]

    def written(self) -> str:
        """Return the value as a program receives it: the shortest text that reads back."""
        return repr(self.value)


class BooleanParameter(Strict):
    """True or false."""

    type: Literal["boolean"]
    value: bool

    def written(self) -> str:
        """Return the value as a program receives it."""
        return "true" if self.value else "false"


class EnumerationParameter(Strict):
    """One of several texts."""

    type: Literal["enumeration"]
    value: Text
    options: Annotated[list[Text], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _is_an_option(self) -> EnumerationParameter:
        if self.value not in self.options:
            raise ValueError("the value is not one of the options")
        return self

    def written(self) -> str:
        """Return the value as a program receives it."""
        return self.value


class SecretParameter(Strict):
    """A text that is never returned, and reaches the program through a Secret."""

    type: Literal["secret"]
    value: Annotated[
        str, Field(min_length=1, max_length=LONGEST_VALUE, pattern=r"^[^\x00]*$", repr=False)
    ]


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
    | Annotated[SecretParameter, Tag("~secret")],
    Discriminator(
        _type_of,
        custom_error_type="parameter_type",
        custom_error_message=(
            "type must be one of text, integer, floating, boolean, enumeration, secret"
        ),
    ),
]
