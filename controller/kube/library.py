"""The parts of ``kubernetes_asyncio`` that are used: its models are not, and not imported.

Its packages import some 800 modules with their names, for a second of every start. Three of them
wait here until somebody, such as a plugin of another package, asks for one of their names. From
then on they are what they would have been.
"""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

_WAITING: Final = (
    "kubernetes_asyncio",
    "kubernetes_asyncio.client",
    "kubernetes_asyncio.client.models",
)
_LOADING: Final = threading.RLock()
_ASKED: Final = frozenset(("__all__", "__version__", "__project__"))
"""The names of this form that a package may have; others are asked of every module."""


class _Waiting(ModuleType):
    """A package that is executed once a name is asked for that it does not have yet."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _ASKED:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _LOADING:  # another thread waits; what is imported meanwhile may ask for a name
            if self.__dict__.pop("_waits", False) and self.__spec__ and self.__spec__.loader:
                self.__spec__.loader.exec_module(self)
                object.__setattr__(self, "__class__", ModuleType)
            return ModuleType.__getattribute__(self, name)


def _let_wait(name: str) -> None:
    """Put a package in its place that waits, unless the whole one is there already."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return
    module = module_from_spec(spec)
    module.__dict__["_waits"] = True
    module.__class__ = _Waiting
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


for _name in _WAITING:
    _let_wait(_name)

# First, since the next one asks the package for it.
import kubernetes_asyncio.client.rest  # noqa: E402
from kubernetes_asyncio.client.api_client import ApiClient  # noqa: E402
from kubernetes_asyncio.client.configuration import Configuration  # noqa: E402

# The library's own modules ask the package for these, which is to wait all the same.
vars(kubernetes_asyncio.client).update(ApiClient=ApiClient, Configuration=Configuration)
RESTClientObject = kubernetes_asyncio.client.rest.RESTClientObject

from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config  # noqa: E402

__all__ = [
    "ApiClient",
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "load_incluster_config",
    "load_kube_config",
]
