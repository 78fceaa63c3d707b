"""Makes recordings: ``python -m tests.recorded.record [sqlite] [postgresql]``.

It runs the product of its own tree, that of the recorded commit, with a real Redis, a real store,
the embedded cluster, and a third-party plugin. When every job is in the state that `scenario`
wants, controller and Volcano are killed, and their data is written to files.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from controller.kube.client import Kube
from controller.kube.kinds import (
    COMMANDS,
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VCJOBS,
    Kind,
)
from controller.plugins import PLUGINS
from controller.store.database import Store
from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.controller.postgres import Postgres, running_postgres
from tests.controller.running import Controller
from tests.programs import RedisServer, redis_program
from tests.recorded.controller_client import hooks_noted, plugin_environment, read_page
from tests.recorded.recording import COMMIT, INSTANCE, STORES, Object, Recording
from tests.recorded.scenario import TROUBLE, Scenario, make_foreign_objects

# Each kind comes after the kinds that own its objects.
KINDS: Final[tuple[Kind, ...]] = (
    NODES, NAMESPACES, QUEUES, SERVICE_ACCOUNTS, ROLE_BINDINGS, RESOURCE_QUOTAS, LEASES, VCJOBS,
    COMMANDS, POD_GROUPS, PERSISTENT_VOLUME_CLAIMS, CONFIG_MAPS, SECRETS, SERVICES,
    NETWORK_POLICIES, PODS,
)  # fmt: skip
_EVERY_CLUSTER: Final = re.compile(r"default|kube-.*|root")
_LONG_FLOAT: Final = re.compile(r"\b\d\.\d{15,25}e[+-]\d\d\b")
_PSQL_ONLY: Final = re.compile(r"^(\\.*|SET transaction_timeout.*|--.*|)\n", re.MULTILINE)

COMMON: Final = {
    "FUMAROLE_CONTROLLER_PLUGINS": ",".join(
        [*(one.name for one in PLUGINS[:-1]), "cost_centre", PLUGINS[-1].name]
    ),
    "FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS": "5",
}
# The two differ in an installation's choices: namespaces per owner, and Services per rank.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "sqlite": COMMON,
    "postgresql": COMMON
    | {
        "FUMAROLE_CONTROLLER_FAIR_SHARE": "on",
        "FUMAROLE_CONTROLLER_RANK_SERVICES": "yes",
    },
}


async def record(kind: str, folder: Path) -> Recording:
    """Return a new recording with that kind of store."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(redis_program(), folder))
        database: Postgres | None = None
        url = f"sqlite:///{folder}/store.db"
        if kind == "postgresql":
            database = stack.enter_context(running_postgres())
            url = database.new_database()
        async with EmbeddedCluster() as cluster, Kube.connect(cluster.kubeconfig("admin")) as admin:
            controller = Controller(
                folder / "controller", kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis.url, instance=INSTANCE, roles="api,reconciler,hub",
                **SETTINGS[kind], **plugin_environment(folder, trouble=TROUBLE),
                FUMAROLE_CONTROLLER_STORE_URL=url, FUMAROLE_CONTROLLER_HUB_LISTEN="127.0.0.1:0",
            )  # fmt: skip
            async with opened(url) as store:
                scenario = Scenario(controller, admin, store)
                try:
                    facts = await play(scenario, kind)
                    await controller.kill()
                    await cluster.kill_program("volcano")
                finally:
                    await controller.kill()
            client = connect(redis.url)
            try:
                commands = [one async for one in redis_commands(client)]
            finally:
                await client.aclose()
            objects = [one async for one in objects_of(admin)]
            facts["recorded_at"] = time.time()
        text = (
            dump_sqlite(folder / "store.db") if database is None else dump_postgres(database, url)
        )
    return Recording(
        store=text,
        redis="".join(json.dumps(one) + "\n" for one in commands),
        cluster="".join(f"{compact(one)}\n" for one in objects),
        facts=by_line(facts),
    )


def by_line(facts: dict[str, Any]) -> str:
    """Return JSON with one fact a line."""
    lines = ",\n".join(f"{json.dumps(name)}:{compact(value)}" for name, value in facts.items())
    return f"{{\n{lines}\n}}\n"


def compact(value: Any) -> str:
    """Return JSON without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def play(scenario: Scenario, kind: str) -> dict[str, Any]:
    """Run the scenario; return what the orchestrator knows at its end."""
    controller = scenario.controller
    await controller.start()
    await make_foreign_objects(scenario.admin)
    await scenario.forgotten()
    await controller.stop()
    await asyncio.sleep(1.1)
    controller.settings["FUMAROLE_CONTROLLER_HISTORY_SECONDS"] = "1"
    await controller.start()
    await asyncio.sleep(1.0)
    await controller.stop()
    del controller.settings["FUMAROLE_CONTROLLER_HISTORY_SECONDS"]
    await controller.start()
    await scenario.play()
    jobs = (await controller.call("GET", "/v1/jobs?limit=1000"))["items"]
    ids = [one["id"] for one in jobs]
    return {
        "commit": COMMIT,
        "instance": INSTANCE,
        "settings": SETTINGS[kind],
        "link_key": (controller.folder / "link.key").read_text().strip(),
        "sids": scenario.sids,
        "jobs": {one: await controller.job(one) for one in ids},
        "history": {one: await controller.call("GET", f"/v1/jobs/{one}/history") for one in ids},
        "sessions": {
            sid: await controller.call("GET", f"/v1/sessions/{sid}")
            for sid in scenario.sids.values()
        },
        **{name: await read_page(controller, f"/v1/{name}") for name in ("updates", "usage")},
        "hooks": hooks_noted(controller.folder.parent),
    }


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """Yield the store, whose tables the controller creates."""
    store = Store(url)
    try:
        yield store
    finally:
        await store.close()


# The recorded data


def dump_sqlite(path: Path) -> str:
    """Return the database as SQL, with numbers in Python's format."""
    connection = sqlite3.connect(path)
    try:
        return "".join(f"{plain(line)}\n" for line in connection.iterdump())
    finally:
        connection.close()


def plain(line: str) -> str:
    return _LONG_FLOAT.sub(lambda found: repr(float(found[0])), line)


def dump_postgres(server: Postgres, url: str) -> str:
    """Return the database as SQL that any client can run."""
    name = unquote(url.partition("@/")[2].partition("?")[0])
    done = subprocess.run(
        [server.programs / "pg_dump", "-h", str(server.folder), "-U", "fumarole", "--inserts",
         "--no-owner", "--no-privileges", "--no-comments", name],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return _PSQL_ONLY.sub("", done.stdout)


async def redis_commands(redis: Any) -> AsyncIterator[list[str]]:
    """Yield the commands that fill an empty Redis with this one's content."""
    for key in sorted([key.decode() async for key in redis.scan_iter("*")]):
        match (await redis.type(key)).decode():
            case "hash":
                for field, value in sorted((await redis.hgetall(key)).items()):
                    yield ["HSET", key, field.decode(), value.decode()]
            case "zset":
                for member, score in await redis.zrange(key, 0, -1, withscores=True):
                    yield ["ZADD", key, repr(score), member.decode()]
            case "stream":
                for entry, fields in await redis.xrange(key):
                    pairs = [part.decode() for pair in fields.items() for part in pair]
                    yield ["XADD", key, entry.decode(), *pairs]
            case "string":
                seconds = max(1, await redis.ttl(key))
                yield ["SET", key, (await redis.get(key)).decode(), "EX", str(seconds)]
            case other:
                raise NotImplementedError(other)


async def objects_of(admin: Kube) -> AsyncIterator[Object]:
    """Yield the cluster's objects, without those that every cluster has."""
    for kind in KINDS:
        for found in await admin.list(kind):
            metadata = found["metadata"]
            place = metadata.get("namespace") or (
                metadata["name"] if kind in (NAMESPACES, QUEUES) else ""
            )
            own_accounts = kind in (SERVICE_ACCOUNTS, CONFIG_MAPS) and metadata["name"] in (
                "default", "kube-root-ca.crt",
            )  # fmt: skip
            if own_accounts or (_EVERY_CLUSTER.fullmatch(place) and kind is not LEASES):
                continue
            if kind is LEASES and place == "kube-node-lease":
                continue
            yield {"apiVersion": kind.api, "kind": kind.kind, **found}


def main() -> None:
    """Record the kinds named on the command line, or both."""
    head = ["git", "rev-parse", "--short=7", "HEAD"]
    print(f"recording at {subprocess.run(head, capture_output=True, text=True).stdout.strip()}")
    for kind in sys.argv[1:] or STORES:
        for folder in temporary_folder():
            asyncio.run(record(kind, folder)).write(kind)


def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
