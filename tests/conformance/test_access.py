"""Tests authentication, and the server's information about itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes_asyncio import client, config

from deploy.local.cluster import EmbeddedCluster
from tests.conformance.calls import Kube, refused


async def _listing_pods(kubeconfig: Path, token: str | None) -> object:
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    configuration.api_key = {"BearerToken": f"Bearer {token}"} if token else {}
    configuration.cert_file = configuration.key_file = None
    async with client.ApiClient(configuration) as api:
        return await client.CoreV1Api(api).list_namespaced_pod("default")


async def test_a_request_without_token_is_anonymous_or_unauthorized(kubeconfig: Path) -> None:
    with pytest.raises(client.ApiException) as caught:
        await _listing_pods(kubeconfig, None)
    off = caught.value.status == 401  # with `--anonymous-auth=false`
    row = "no token, where nobody is anonymous" if off else "no token"
    await refused(row, _listing_pods(kubeconfig, None))


async def test_an_unknown_token_is_refused(kubeconfig: Path) -> None:
    await refused("a bad token", _listing_pods(kubeconfig, "not-a-token"))


async def test_a_token_without_the_right_is_refused(embedded: EmbeddedCluster | None) -> None:
    if embedded is None:
        pytest.skip("the embedded cluster alone has an identity without rights")
    configuration = client.Configuration()
    path = str(embedded.kubeconfig("nobody"))
    await config.load_kube_config(path, client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        listing = client.CoreV1Api(api).list_namespaced_pod("default")
        await refused("a token without the right", listing)


async def test_the_controller_reads_no_secret_and_deletes_no_namespace(
    embedded: EmbeddedCluster | None,
) -> None:
    if embedded is None:
        pytest.skip("rights of the embedded cluster's identities")
    configuration = client.Configuration()
    path = str(embedded.kubeconfig("controller"))
    await config.load_kube_config(path, client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        core = client.CoreV1Api(api)
        row = "a token without the right"
        await refused(row, core.list_namespaced_secret("default"))
        with pytest.raises(client.ApiException) as caught:
            await core.delete_namespace("default")
        assert caught.value.status == 403
        assert (await core.list_namespace()).items


async def test_version_and_discovery_name_what_is_served(kube: Kube) -> None:
    status, version = await kube.call("GET", "/version")
    assert status == 200
    assert version["major"] == "1"
    status, core = await kube.call("GET", "/api/v1")
    assert status == 200
    assert {"pods", "pods/exec", "pods/log", "namespaces"} <= {r["name"] for r in core["resources"]}
    status, groups = await kube.call("GET", "/apis")
    assert groups["kind"] == "APIGroupList"
    assert {"batch.volcano.sh", "coordination.k8s.io"} <= {g["name"] for g in groups["groups"]}
    status, batch = await kube.call("GET", "/apis/batch.volcano.sh/v1alpha1")
    jobs = next(r for r in batch["resources"] if r["name"] == "jobs")
    assert set(jobs["shortNames"]) == {"vcjob", "vj"}


async def test_openapi_shows_the_features_of_this_volcano(kube: Kube) -> None:
    status, index = await kube.call("GET", "/openapi/v3")
    assert status == 200
    url = index["paths"]["apis/batch.volcano.sh/v1alpha1"]["serverRelativeURL"]
    path, _, query = url.partition("?")
    asked = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    status, document = await kube.call("GET", path, query=asked)
    assert status == 200
    schema = document["components"]["schemas"]["sh.volcano.batch.v1alpha1.Job"]
    tasks = schema["properties"]["spec"]["properties"]["tasks"]["items"]["properties"]
    assert {"dependsOn", "minAvailable", "topologyPolicy"} <= set(tasks)
