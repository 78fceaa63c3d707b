"""How long plugins' hooks may take, and how often a failing one is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

DEFAULT_SECONDS: Final = 30.0
DEFAULT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class HookSeconds:
    """The time limits of hooks: the default, and those of individual plugins."""

    default: float = DEFAULT_SECONDS
    named: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
