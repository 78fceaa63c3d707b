"""Tests tokens of ServiceAccounts, and the rights that role bindings give to their bearers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from tests.conformance.calls import Kube, Object, eventually, make_config_map

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@asynccontextmanager
async def _as_account(kube: Kube, kubeconfig: Path, namespace: str) -> AsyncIterator[Kube]:
    """Provide the APIs as the namespace's ServiceAccount ``worker``, which is created here."""
    account = {"metadata": {"name": "worker"}}
    await kube.core.create_namespaced_service_account(namespace, account)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/worker/token"
    code, said = await kube.call("POST", path, {"spec": {"expirationSeconds": 3600}})
    assert code == 201, said
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    configuration.api_key = {"BearerToken": f"Bearer {said['status']['token']}"}
    configuration.cert_file = configuration.key_file = None
    async with client.ApiClient(configuration) as api:
        yield Kube(api)


def _binding(namespace: str, role: str) -> Object:
    return {
        "metadata": {"name": f"worker-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": namespace}],
    }


def _rule(group: str, resource: str, *verbs: str, **rest: Any) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **rest}


async def _grant(kube: Kube, namespace: str, name: str, *rules: Object) -> None:
    base = f"{_RBAC}/namespaces/{namespace}"
    role = {"metadata": {"name": name}, "rules": list(rules)}
    assert (await kube.call("POST", f"{base}/roles", role))[0] == 201
    made = await kube.call("POST", f"{base}/rolebindings", _binding(namespace, name))
    assert made[0] == 201, made


async def _may(kube: Kube, method: str, path: str, body: Any = None, *, code: int = 200) -> None:
    """Wait until the call returns *code*: a new binding takes effect after a moment."""

    async def answered() -> bool:
        return (await kube.call(method, path, body))[0] == code

    await eventually(answered)


async def test_a_role_binding_grants_rights_in_its_namespace(
    kube: Kube, kubeconfig: Path, namespace: str
) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    async with _as_account(kube, kubeconfig, namespace) as worker:
        assert (await worker.call("GET", maps))[0] == 403
        await _grant(kube, namespace, "maps", _rule("", "configmaps", "list", "create"))
        await _may(worker, "GET", maps)
        assert (await worker.call("POST", maps, make_config_map("m")))[0] == 201
        assert (await worker.call("DELETE", f"{maps}/m"))[0] == 403
        assert (await worker.call("GET", "/api/v1/namespaces/default/configmaps"))[0] == 403
        assert (await worker.call("GET", "/api/v1/configmaps"))[0] == 403


async def test_a_right_to_one_name_is_no_right_to_another(
    kube: Kube, kubeconfig: Path, namespace: str
) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("mine", "other"):
        assert (await kube.call("POST", maps, make_config_map(name)))[0] == 201
    async with _as_account(kube, kubeconfig, namespace) as worker:
        rule = _rule("", "configmaps", "get", resourceNames=["mine"])
        await _grant(kube, namespace, "one", rule)
        await _may(worker, "GET", f"{maps}/mine")
        assert (await worker.call("GET", f"{maps}/other"))[0] == 403


async def test_rbac_escalation_is_refused_without_the_bind_verb(
    kube: Kube, kubeconfig: Path, namespace: str
) -> None:
    base = f"{_RBAC}/namespaces/{namespace}"
    rbac = "rbac.authorization.k8s.io"
    secrets = {"metadata": {"name": "secrets"}, "rules": [_rule("", "secrets", "get")]}
    assert (await kube.call("POST", f"{base}/roles", secrets))[0] == 201
    async with _as_account(kube, kubeconfig, namespace) as worker:
        await _grant(kube, namespace, "binder", _rule(rbac, "rolebindings", "create"))

        async def is_refused_for_what_it_has_not() -> bool:
            code, said = await worker.call(
                "POST", f"{base}/rolebindings", _binding(namespace, "secrets")
            )
            assert code == 403
            return "attempting to grant RBAC permissions not currently held" in str(said)

        await eventually(is_refused_for_what_it_has_not)
        rule = _rule(rbac, "roles", "bind", resourceNames=["secrets"])
        await _grant(kube, namespace, "may-bind", rule)
        asked = "POST", f"{base}/rolebindings", _binding(namespace, "secrets")
        await _may(worker, *asked, code=201)


async def test_self_subject_access_reviews_report_own_rights(
    kube: Kube, kubeconfig: Path, namespace: str
) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    async with _as_account(kube, kubeconfig, namespace) as worker:
        await _grant(kube, namespace, "reader", _rule("", "pods", "get"))

        async def allowed(verb: str) -> bool:
            asked = {"namespace": namespace, "verb": verb, "resource": "pods"}
            review = {"spec": {"resourceAttributes": asked}}
            code, said = await worker.call("POST", path, review)
            assert code == 201
            return bool(said["status"]["allowed"])

        await eventually(lambda: allowed("get"))
        assert not await allowed("delete")


@pytest.mark.parametrize("name", ["nobody", "worker"])
async def test_token_requests_need_an_existing_account_and_expire(
    kube: Kube, namespace: str, name: str
) -> None:
    if name == "worker":
        account = {"metadata": {"name": "worker"}}
        await kube.core.create_namespaced_service_account(namespace, account)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    code, _ = await kube.call("POST", path, {"spec": {"expirationSeconds": 60}})
    assert code == (422 if name == "worker" else 404)
