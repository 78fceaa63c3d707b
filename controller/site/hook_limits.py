"""How long hooks of plugins may take, and how often one that fails is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

DEFAULT_SECONDS: Final = 30.0
DEFAULT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class HookSeconds:
    """How long hooks may take: those of most plugins, and of those that are named."""

    default: float = DEFAULT_SECONDS
    named: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
