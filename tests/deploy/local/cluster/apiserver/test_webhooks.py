"""Tests the calls to a webhook of the test's own for a write with ``dryRun``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.blocks import SERVICE_NETWORK
from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import ADMISSION, KindTable, make_builtin_kinds
from deploy.local.cluster.apiserver.options import Options
from deploy.local.cluster.apiserver.registry import Registry
from deploy.local.cluster.apiserver.store import Store
from deploy.local.cluster.apiserver.webhooks import Webhooks

KINDS = KindTable(make_builtin_kinds())
CONFIG_MAPS = KINDS.by_key(("", "configmaps"))
ADMIN = User("admin", ("system:masters",))
SPACE = {"metadata": {"name": "n", "uid": "n"}, "spec": {}, "status": {"phase": "Active"}}


class Hook:
    """A webhook, and the reviews that it received."""

    def __init__(self, store: Store) -> None:
        self.asked: list[Any] = []
        self.url = ""
        self._store = store

    def configure(self, side_effects: str | None) -> None:
        """Register the webhook for new ConfigMaps."""
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"]}  # fmt: skip
        hook: dict[str, Any] = {
            "name": "a.example.com", "clientConfig": {"url": self.url}, "rules": [rule],
        }  # fmt: skip
        if side_effects is not None:
            hook["sideEffects"] = side_effects
        value = {"metadata": {"name": "a", "uid": "a"}, "webhooks": [hook]}
        self._store.put((ADMISSION, "validatingwebhookconfigurations"), value)

    async def answer(self, request: web.Request) -> web.Response:
        """Allow the request."""
        review = await request.json()
        self.asked.append(review["request"])
        said = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({"response": said})


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    store = Store()
    store.put(("", "namespaces"), SPACE)
    webhooks = Webhooks(store)
    yield Registry(store, KINDS, webhooks, SERVICE_NETWORK)
    await webhooks.close()


@pytest.fixture
async def hook(registry: Registry) -> AsyncIterator[Hook]:
    made, app = Hook(registry.store), web.Application()
    app.router.add_post("/", made.answer)
    async with TestServer(app, shutdown_timeout=0) as server:
        made.url = str(server.make_url("/"))
        yield made


async def create(registry: Registry, *, dry_run: bool) -> None:
    body = {"metadata": {"name": "c"}}
    options = Options(dry_run=dry_run)
    await registry.create(CONFIG_MAPS, "n", body, user=ADMIN, options=options)


@pytest.mark.parametrize("side_effects", ["None", "NoneOnDryRun"])
async def test_a_webhook_receives_the_dry_run_flag(
    registry: Registry, hook: Hook, side_effects: str
) -> None:
    hook.configure(side_effects)
    await create(registry, dry_run=True)
    assert registry.store.get(CONFIG_MAPS.key, "n", "c") is None
    await create(registry, dry_run=False)
    assert [one["dryRun"] for one in hook.asked] == [True, False]


@pytest.mark.parametrize("side_effects", ["Some", "Unknown", None])
async def test_a_webhook_with_side_effects_is_not_called_in_a_dry_run(
    registry: Registry, hook: Hook, side_effects: str | None
) -> None:
    hook.configure(side_effects)
    with pytest.raises(ApiError, match="does not support dry run") as caught:
        await create(registry, dry_run=True)
    assert caught.value.code == 400
    assert hook.asked == []
    await create(registry, dry_run=False)
    assert len(hook.asked) == 1
