from __future__ import annotations

from tests.controller.plugins.plans import pod_of, problems_of


async def test_a_pod_meets_the_restricted_pod_security_standard() -> None:
    pod = await pod_of()
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


async def test_a_pod_holds_no_credentials_of_the_cluster_and_is_not_restarted() -> None:
    pod = await pod_of()
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["restartPolicy"] == "Never"


async def test_the_working_directory_is_writable() -> None:
    pod = await pod_of()
    container = pod["containers"][0]
    assert container["workingDir"] == "/work"
    assert {"name": "work", "mountPath": "/work"} in container["volumeMounts"]
    assert {"name": "work", "emptyDir": {}} in pod["volumes"]


async def test_the_deployment_configures_user_and_node_selector() -> None:
    settings = {
        "FUMAROLE_CONTROLLER_RUN_AS_USER": "1234",
        "FUMAROLE_CONTROLLER_RUN_AS_NON_ROOT": "no",
        "FUMAROLE_CONTROLLER_WORKING_DIRECTORY": "/",
    }
    pod = await pod_of(settings=settings)
    assert pod["securityContext"]["runAsUser"] == 1234
    assert pod["securityContext"]["runAsNonRoot"] is False
    assert pod["containers"][0]["workingDir"] == "/"
    assert "work" not in [one["name"] for one in pod["volumes"]]


async def test_a_job_sets_its_grace_period_within_a_limit() -> None:
    assert "terminationGracePeriodSeconds" not in await pod_of()
    assert (await pod_of(stop_grace_seconds=5))["terminationGracePeriodSeconds"] == 5
    most = {"FUMAROLE_CONTROLLER_MAX_STOP_GRACE_SECONDS": "20"}
    assert (await pod_of(settings=most))["terminationGracePeriodSeconds"] == 20
    assert await problems_of(settings=most, stop_grace_seconds=21) == {
        "stop_grace_seconds": "at most 20 here"
    }
