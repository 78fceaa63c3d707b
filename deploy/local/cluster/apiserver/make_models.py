"""Writes ``models.json``: the fields of the built-in kinds, from `kubernetes_asyncio`.

Run it by hand after an upgrade of that library: ``python -m
deploy.local.cluster.apiserver.make_models``. The server reads only the file, since importing the
library takes longer than the server may take to start.
"""

import json
import re
from typing import Any

import kubernetes_asyncio.client as library

from deploy.local.cluster.apiserver.models import MODELS, PATH

Models = dict[str, dict[str, Any]]


def make_models() -> Models:
    """Return every model of the built-in kinds: types of fields, and required fields."""
    models: Models = {}
    for name in MODELS.values():
        _visit(name, models)
    return models


def _visit(name: str, models: Models) -> None:
    model = getattr(library, name, None)
    if model is None or name in models:
        return
    models[name] = {
        "fields": {model.attribute_map[a]: t for a, t in model.openapi_types.items()},
        "required": [shown for own, shown in model.attribute_map.items() if _needs(model, own)],
    }
    for type_name in model.openapi_types.values():
        for inner in re.findall(r"\b[A-Z]\w+", type_name):
            _visit(inner, models)


def _needs(model: Any, attribute: str) -> bool:
    """Whether the model's own validation refuses to remove *attribute*."""
    blank = object.__new__(model)
    blank.local_vars_configuration = library.Configuration()
    try:
        setattr(blank, attribute, None)
    except ValueError:
        return True
    return False


if __name__ == "__main__":
    PATH.write_text(json.dumps(make_models(), indent=0, separators=(",", ":"), sort_keys=True))
