"""Tests the embedded cluster against recorded responses of a real server (Kubernetes 1.36.2).

Each row was recorded. `tests/conformance` works with any cluster; these cases know this one.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import aiohttp
import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.client import CLAIMS, CONFIG_MAPS, EVENTS, PODS, Client, Object, Refused
from deploy.local.cluster.client import Resource as Kind
from deploy.local.cluster.kubeconfig import Access, read_kubeconfig

ACCOUNTS = Kind("v1", "serviceaccounts")
LEASES = Kind("coordination.k8s.io/v1", "leases")
POLICIES = Kind("networking.k8s.io/v1", "networkpolicies")
QUOTAS = Kind("v1", "resourcequotas")
BINDINGS = Kind("rbac.authorization.k8s.io/v1", "rolebindings")
SERVICES = Kind("v1", "services")
SECRETS = Kind("v1", "secrets")


async def _refusal(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value


def _pod(**spec: Any) -> Object:
    containers = [{"name": "a", "image": "b"}]
    return {"metadata": {"name": "a"}, "spec": {"containers": containers, **spec}}


def _asking(**resources: Any) -> Object:
    return _pod(containers=[{"name": "a", "image": "b", "resources": resources}])


def _claim(mode: str, size: str) -> Object:
    resources = {"requests": {"storage": size}}
    spec = {"storageClassName": "none", "accessModes": [mode], "resources": resources}
    return {"metadata": {"name": "a"}, "spec": spec}


def _block(cidr: str, *holes: str) -> Object:
    block = {"cidr": cidr, "except": list(holes)}
    return {"podSelector": {}, "egress": [{"to": [{"ipBlock": block}]}]}


REFUSED: list[tuple[Kind, Object, int, str]] = [
    (PODS, _pod(hostname="a" * 64), 422, "spec.hostname: Invalid value"),
    (PODS, _pod(nodeSelector={"a b": "c"}), 422, "spec.nodeSelector: Invalid value"),
    (PODS, _pod(tolerations=[{"operator": "Exists", "value": "x"}]), 422, "must be empty when"),
    (PODS, _pod(runtimeClassName="nope"), 403, 'RuntimeClass "nope" not found'),
    (PODS, _pod(activeDeadlineSeconds=0), 422, "must be between 1 and 2147483647, inclusive"),
    (PODS, _pod(securityContext={"runAsUser": -1}), 422, "spec.securityContext.runAsUser"),
    (PODS, _asking(requests={"cpu": "2"}, limits={"cpu": "1"}), 422, "cpu limit of 1"),
    (PODS, _asking(limits={"nvidia.com/gpu": "1.5"}), 422, "must be an integer"),
    (PODS, _asking(limits={"cpu": "x"}), 400, "quantities must match"),
    (SERVICES, {"spec": {"ports": [{"port": 80}, {"port": 81}]}}, 422, "spec.ports[1].name"),
    (SERVICES, {"spec": {"ports": [{"port": 0}]}}, 422, "must be between 1 and 65535"),
    (SERVICES, {"spec": {"clusterIP": "1.2.3.4", "ports": [{"port": 1}]}}, 422, "current range"),
    (POLICIES, {"spec": _block("10.0.0.0/33")}, 422, "must be a valid CIDR value"),
    (POLICIES, {"spec": _block("10.0.0.0/8", "11.0.0.0/16")}, 422, "strict subset of `cidr`"),
    (POLICIES, {"spec": {"policyTypes": ["X"]}}, 422, 'supported values: "Ingress", "Egress"'),
    (LEASES, {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}, 400, 'cannot parse "Z" as ".000000"'),
    (LEASES, {"spec": {"renewTime": "x"}}, 400, 'cannot parse "x" as "2006"'),
    (LEASES, {"spec": {"leaseDurationSeconds": 0}}, 422, "must be greater than 0"),
    (CLAIMS, _claim("Nope", "1Gi"), 422, "spec.accessModes: Unsupported value"),
    (CLAIMS, _claim("ReadWriteOnce", "-1"), 422, "must be greater than zero"),
    (QUOTAS, {"spec": {"hard": {"pods": "x"}}}, 400, "quantities must match"),
    (QUOTAS, {"spec": {"hard": {"nope": "1"}}}, 422, "must be a standard resource for quota"),
    (BINDINGS, {"roleRef": {"kind": "Nope", "name": "a"}}, 422, "roleRef.kind: Unsupported value"),
    (SECRETS, {"data": {"a": "%%%"}}, 400, "illegal base64 data at input byte 0"),
    (SECRETS, {"data": {"a b": "YQ=="}}, 422, "a valid config key must consist of"),
    (CONFIG_MAPS, {"kind": "Secret", "apiVersion": "v1"}, 400, "unknown conversion"),
    (EVENTS, {"involvedObject": {"namespace": "kube-system"}}, 422, "does not match"),
]


@pytest.mark.parametrize(("kind", "body", "code", "says"), REFUSED)
async def test_invalid_objects_are_refused_in_a_real_servers_words(
    client: Client, namespace: str, kind: Kind, body: Object, code: int, says: str
) -> None:
    refusal = await _refusal(client.create(kind, namespace, {"metadata": {"name": "a"}, **body}))
    assert refusal.code == code
    assert says in str(refusal)


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_a_config_map_holds_a_megabyte(client: Client, namespace: str) -> None:
    large = {"metadata": {"name": "a"}, "data": {"a": "x" * 1_100_000}}
    refusal = await _refusal(client.create(CONFIG_MAPS, namespace, large))
    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert "may not be more than 1048576 bytes" in str(refusal)


async def test_a_dry_run_in_a_deletes_body_deletes_nothing(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "a"}})
    await client.delete(CONFIG_MAPS, namespace, "a", {"dryRun": ["All"]})
    assert await client.get(CONFIG_MAPS, namespace, "a")
    refusal = await _refusal(client.delete(CONFIG_MAPS, namespace, "a", {"dryRun": ["Nope"]}))
    assert (refusal.code, refusal.reason) == (422, "Invalid")


async def test_a_claim_waits_for_the_pod_that_uses_it(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, namespace, _claim("ReadWriteOnce", "1Gi"))
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "a"}}
    await client.create(PODS, namespace, _pod(volumes=[volume]))
    await client.delete(CLAIMS, namespace, "a")
    await asyncio.sleep(0.5)
    held = await client.get(CLAIMS, namespace, "a") or {}
    assert held["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    await client.delete(PODS, namespace, "a", {"gracePeriodSeconds": 0})
    async with asyncio.timeout(10):
        while await client.get(CLAIMS, namespace, "a"):
            await asyncio.sleep(0.05)


async def test_an_owner_reference_to_another_namespace_is_ignored(
    client: Client, namespace: str
) -> None:
    owner = await client.create(CONFIG_MAPS, "default", {"metadata": {"name": f"o-{namespace}"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", **owner["metadata"]}
    reference = {key: reference[key] for key in ("apiVersion", "kind", "name", "uid")}
    body = {"metadata": {"name": "a", "ownerReferences": [reference]}}
    await client.create(CONFIG_MAPS, namespace, body)
    async with asyncio.timeout(10):
        while await client.get(CONFIG_MAPS, namespace, "a"):
            await asyncio.sleep(0.05)
    events, _ = await client.list_objects(EVENTS, {"fieldSelector": "involvedObject.name=a"})
    reasons = [e["reason"] for e in events if e["metadata"]["namespace"] == namespace]
    assert reasons == ["OwnerRefInvalidNamespace"]
    await client.delete(CONFIG_MAPS, "default", f"o-{namespace}")


async def test_each_namespace_gets_the_root_ca_config_map(client: Client, namespace: str) -> None:
    async with asyncio.timeout(10):
        while (found := await client.get(CONFIG_MAPS, namespace, "kube-root-ca.crt")) is None:
            await asyncio.sleep(0.05)
    assert found["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


async def test_a_token_of_a_deleted_account_is_refused(
    cluster: EmbeddedCluster, client: Client, namespace: str
) -> None:
    await client.create(ACCOUNTS, namespace, {"metadata": {"name": "w"}})
    path = ACCOUNTS.path(namespace, "w", "token")
    made = await client.post(path, {"spec": {"expirationSeconds": 600}})
    token = made["status"]["token"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["sub"] == f"system:serviceaccount:{namespace}:w"
    access = read_kubeconfig(cluster.kubeconfig())
    async with Client(Access(access.server, token, access.tls)) as other:
        assert (await _refusal(other.list_objects(PODS, {}))).code == 403
        await client.delete(ACCOUNTS, namespace, "w")
        # another account of that name
        await client.create(ACCOUNTS, namespace, {"metadata": {"name": "w"}})
        assert (await _refusal(other.list_objects(PODS, {}))).code == 401


async def _list_pods(access: Access, **headers: str) -> tuple[int, Object]:
    """List the Pods of ``default`` with these headers, underscores for hyphens."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent["Authorization"] = f"Bearer {access.token}"
    async with (
        aiohttp.ClientSession(headers=sent) as session,
        session.get(access.server + PODS.path("default"), ssl=access.tls or False) as response,
    ):
        return response.status, await response.json()


async def test_an_impersonated_request_has_the_rights_of_the_other_user(
    cluster: EmbeddedCluster,
) -> None:
    admin = read_kubeconfig(cluster.kubeconfig())
    code, said = await _list_pods(admin, Impersonate_User="eve")
    assert (code, said["reason"]) == (403, "Forbidden")
    assert 'User "eve" cannot list resource "pods"' in said["message"]
    masters = {"Impersonate_User": "eve", "Impersonate_Group": "system:masters"}
    code, said = await _list_pods(admin, **masters)
    assert (code, said["kind"]) == (200, "PodList")
    code, said = await _list_pods(read_kubeconfig(cluster.kubeconfig("nobody")), **masters)
    assert code == 403
    assert 'cannot impersonate resource "users"' in said["message"]


async def test_a_collection_is_deleted_by_selector(client: Client, namespace: str) -> None:
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        metadata = {"name": name, "labels": {"which": label}}
        await client.create(CONFIG_MAPS, namespace, {"metadata": metadata})
    path = f"{CONFIG_MAPS.path(namespace)}?labelSelector=which%3D1"
    await client.delete(Kind("v1", path.removeprefix("/api/v1/"), namespaced=False), "", "")
    assert await client.get(CONFIG_MAPS, namespace, "a") is None
    assert await client.get(CONFIG_MAPS, namespace, "c")


async def test_a_watch_may_send_initial_events_and_a_bookmark(
    client: Client, namespace: str
) -> None:
    await client.create(SECRETS, namespace, {"metadata": {"name": "a"}})
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    seen: list[str] = []
    async with asyncio.timeout(10):
        async for change, value in client.watch(
            SECRETS, {**query, "fieldSelector": "metadata.name=a"}
        ):
            seen.append(change)
            if change == "BOOKMARK":
                assert value["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
                break
    assert seen == ["ADDED", "BOOKMARK"]


async def test_items_of_a_typed_list_have_no_kind(cluster: EmbeddedCluster, client: Client) -> None:
    await client.create(PODS, "default", _pod(schedulingGates=[{"name": "e.com/wait"}]))
    _, listed = await _list_pods(read_kubeconfig(cluster.kubeconfig()))
    assert not {"kind", "apiVersion"} & listed["items"][0].keys()
    assert listed["items"][0]["metadata"]["name"] == "a"
    await client.delete(PODS, "default", "a")


@pytest.mark.parametrize(
    ("path", "spec", "kind"),
    [
        ("authorization.k8s.io/v1/selfsubjectaccessreviews", {}, "SelfSubjectAccessReview"),
        ("authorization.k8s.io/v1/selfsubjectrulesreviews", {}, "SelfSubjectRulesReview"),
        ("authorization.k8s.io/v1/subjectaccessreviews", {"user": "x"}, "SubjectAccessReview"),
        ("authentication.k8s.io/v1/selfsubjectreviews", {}, "SelfSubjectReview"),
        ("authentication.k8s.io/v1/tokenreviews", {"token": "x"}, "TokenReview"),
    ],
)
async def test_access_reviews_return_the_requested_kind(
    client: Client, path: str, spec: Object, kind: str
) -> None:
    assert (await client.post(f"/apis/{path}", {"spec": spec}))["kind"] == kind


async def test_an_unknown_review_kind_is_refused(client: Client) -> None:
    path = "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"
    assert (await _refusal(client.post(path, {}))).code == 404


async def test_a_put_creates_a_missing_lease(client: Client, namespace: str) -> None:
    lease = {"metadata": {"name": "l", "namespace": namespace}, "spec": {}}
    assert (await client.replace(LEASES, lease))["metadata"]["uid"]
    refusal = await _refusal(client.replace(CONFIG_MAPS, {**lease, "data": {}}))
    assert refusal.code in (400, 404)


async def test_projected_files_have_a_mode(client: Client, namespace: str) -> None:
    volumes = [{"name": "a", "configMap": {"name": "a"}}, {"name": "b", "secret": {}}]
    gates = [{"name": "e.com/wait"}]
    made = await client.create(PODS, namespace, _pod(volumes=volumes, schedulingGates=gates))
    modes = [
        made["spec"]["volumes"][i][s]["defaultMode"] for i, s in ((0, "configMap"), (1, "secret"))
    ]
    assert modes == [0o644, 0o644]
    (said,) = made["status"]["conditions"]
    assert (said["type"], said["reason"]) == ("PodScheduled", "SchedulingGated")
