"""Lists the names that others read or store, and compares two versions' lists.

``python -m tests.recorded.names``, in a tree of the recorded commit, writes the lists.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from controller.settings import read_settings as read_controller_settings
from controller.store.tables import metadata
from gateway.core.access.refusals import REFUSALS
from gateway.settings import settings_from as read_gateway_settings
from shared.bus import Keys
from shared.settings import Environment
from tests.controller.running import ROOT, Controller
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer, redis_program
from tests.recorded.recording import COMMIT, FOLDER
from tests.recorded.reopened import reopened

NAMES: Final = FOLDER / COMMIT / "names"
PRODUCT: Final = ("shared", "controller", "gateway")
_FAMILY: Final = re.compile(r"^# TYPE (fumarole_\w+) (\w+)$", re.MULTILINE)
_SAMPLE: Final = re.compile(r"^(fumarole_\w+)\{(.*)\} ", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="')

Json = dict[str, Any]


class RecordingEnvironment(Mapping[str, str]):
    """An empty environment that records the requested names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


# Names in today's code


def settings_of_today() -> dict[str, list[str]]:
    """Return the settings that each process reads."""
    found = {}
    for process, read in (
        ("controller", read_controller_settings),
        ("gateway", read_gateway_settings),
    ):
        asked = RecordingEnvironment()
        read(Environment(asked))
        found[process] = sorted(asked.names)
    return found


def columns_of_today() -> dict[str, dict[str, str]]:
    """Return each table's columns, with their types."""
    return {
        name: {column.name: str(column.type) for column in table.columns}
        for name, table in sorted(metadata.tables.items())
    }


def refusals_of_today() -> dict[str, int]:
    """Return the gateway's refusals by code, each with its status."""
    return {code: one.status for code, one in sorted(REFUSALS.items())}


def redis_keys_of_today() -> dict[str, Any]:
    """Return the names of one installation's Redis keys."""
    keys = Keys("i")
    return {
        "routes": keys.routes,
        "revoked": keys.revoked,
        "head": keys.head,
        "log": keys.log,
        "events": keys.events,
        "used": keys.used("t"),
        "pending": list(keys.pending("e")),
    }


def entry_points_of_today() -> dict[str, str]:
    """Return the programs that the package installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(sorted(project["scripts"].items()))


def literals_of_today() -> set[str]:
    """Return every string and number literal in the product's code."""
    found: set[str] = set()
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str | int):
                    found.add(str(node.value))
    return found


async def live_names(controller: Controller, gateway: GatewayProcess) -> Json:
    """Return the running processes' names: the API's description, and both sides' metrics."""
    host, port = gateway.ops
    pages = {
        "controller": f"http://{controller.addresses['ops']}/metrics",
        "gateway": f"http://{host}:{port}/metrics",
    }
    found: Json = {"openapi": await controller.call("GET", "/v1/openapi.json")}
    async with aiohttp.ClientSession() as http:
        for name, url in pages.items():
            async with http.get(url) as response:
                found[f"{name}_metrics"] = metrics_in(await response.text())
    return found


def metrics_in(page: str) -> dict[str, Json]:
    """Return the metrics' types, and the labels of their samples."""
    found: dict[str, Json] = {
        name: {"type": kind, "labels": []}
        for name, kind in sorted(_FAMILY.findall(page))
        if not name.endswith("_created")
    }
    for sample, labels in _SAMPLE.findall(page):
        for suffix in ("", "_total", "_bucket", "_sum", "_count"):
            family = found.get(sample.removesuffix(suffix)) or found.get(sample)
            if family is not None:
                family["labels"] = sorted({*family["labels"], *_LABEL.findall(labels)} - {"le"})
                break
    return found


# Removed names


def gone(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each part of *before* that *now* lacks: a key, an item, a word."""
    if isinstance(before, dict):
        among = [one for one in ("anyOf", "oneOf") if one in now] if isinstance(now, dict) else []
        if among and among[0] not in before:
            # A value that gained an alternative is not removed.
            now = next((one for one in now[among[0]] if not [*gone(before, one)]), now)
        for key, value in before.items():
            if not isinstance(now, dict) or key not in now:
                yield f"{path}/{key}"
            else:
                yield from gone(value, now[key], f"{path}/{key}")
    elif isinstance(before, list):
        for item in before:
            if not isinstance(now, list) or not any(not [*gone(item, one)] for one in now):
                yield f"{path}: {json.dumps(item)[:120]}"
    elif before != now:
        yield f"{path}: {before!r} is {now!r}"


def api_gone(before: Json, now: Json) -> Iterator[str]:
    """Yield what an older API client would miss, or would newly have to send."""
    yield from gone(_without_prose(before), _without_prose(now))
    for name in sorted(_asked(before)):
        was, is_now = before["components"]["schemas"], now["components"]["schemas"]
        needed = set(is_now.get(name, {}).get("required", ()))
        for field in sorted(needed - set(was[name].get("required", ()))):
            yield f"{name}.{field} must be said now"


_PROSE: Final = ("title", "description", "summary", "version", "info", "required", "default")
_BOUNDS: Final = ("maxLength", "maxItems", "maximum", "maxProperties", "minLength", "minItems",
                  "minimum", "exclusiveMinimum", "pattern", "ge", "le")  # fmt: skip


def _without_prose(value: Any, *, names: bool = False) -> Any:
    """Return a description without its texts; keys under ``properties`` are names, and stay."""
    if isinstance(value, dict):
        return {
            key: _without_prose(one, names=key in ("properties", "schemas"))
            for key, one in value.items()
            if names or key not in (*_PROSE, *_BOUNDS)
        }
    return [_without_prose(one) for one in value] if isinstance(value, list) else value


def _asked(description: Json) -> set[str]:
    """Return the names of the schemas that callers send."""
    schemas = description["components"]["schemas"]
    todo = set(re.findall(r"schemas/(\w+)", json.dumps([
        one.get("requestBody") for path in description["paths"].values() for one in path.values()
    ])))  # fmt: skip
    found: set[str] = set()
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= set(re.findall(r"schemas/(\w+)", json.dumps(schemas[name]))) - found
    return found


# Recording


def recorded(name: str) -> Any:
    """Return a recorded list."""
    return json.loads((NAMES / f"{name}.json").read_text())


def write(name: str, value: Any) -> None:
    """Write a recorded list."""
    NAMES.mkdir(parents=True, exist_ok=True)
    (NAMES / f"{name}.json").write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


async def _record(folder: Path) -> None:
    with RedisServer(redis_program(), folder) as server:
        async with reopened("sqlite", folder, server, None) as world:
            await world.gateway.start()
            await world.controller.start()
            await asyncio.sleep(3)
            for name, value in (await live_names(world.controller, world.gateway)).items():
                write(name, value)
    write("settings", settings_of_today())
    write("columns", columns_of_today())
    write("gateway_refusals", refusals_of_today())
    write("redis_keys", redis_keys_of_today())
    write("entry_points", entry_points_of_today())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(_record(Path(name)))
