"""A Pod's status, made from the states of its containers. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(slots=True)
class Container:
    """The state of one container."""

    name: str
    image: str
    state: Object
    """``waiting``, ``running`` or ``terminated``, as the API shows it."""
    last_state: Object
    restarts: int = 0
    identifier: str = ""
    started: bool = False
    """Whether the startup probe, if any, has succeeded."""
    ready: bool = False

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run, if it has ended."""
        ended = self.state.get("terminated")
        return int(ended["exitCode"]) if ended else None

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return "running" in self.state


def new_container(spec: Object, reason: str) -> Container:
    """Return a container that has not started."""
    return Container(spec["name"], spec["image"], {"waiting": {"reason": reason}}, {})


def terminated(code: int, started_at: str, finished_at: str, identifier: str) -> Object:
    """Return the state of a container that ended with *code*; negative: a signal's number."""
    ended: Object = {
        "exitCode": code if code >= 0 else 128 - code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": started_at,
        "finishedAt": finished_at,
        "containerID": identifier,
    }
    if code < 0:
        ended["signal"] = -code
    return {"terminated": ended}


def recall(container: Container, shown: Object, policy: str) -> bool:
    """Continue from an earlier status *shown*; return whether the container must run (again).

    Its process died with the kubelet that ran it.
    """
    container.restarts = shown.get("restartCount", 0)
    container.identifier = shown.get("containerID", "")
    state = shown.get("state") or {}
    if running := state.get("running"):
        state = terminated(-9, running["startedAt"], running["startedAt"], container.identifier)
        state["terminated"] |= {
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the kubelet came back",
        }
    if "terminated" not in state:
        return True
    container.state = state
    again = policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)
    if again:
        container.last_state, container.restarts = state, container.restarts + 1
    return again


def make_phase(pod: Object, inits: Sequence[Container], mains: Sequence[Container]) -> str:
    """Return the Pod's phase."""
    policy = pod["spec"]["restartPolicy"]
    if policy == "Never" and any(c.exit_code not in (None, 0) for c in inits):
        return "Failed"
    if not all(c.exit_code == 0 for c in inits) or not mains:
        return "Pending"
    if any(not c.running and c.exit_code is None and not c.last_state for c in mains):
        return "Pending"
    codes = [c.exit_code for c in mains]
    if policy != "Always" and None not in codes:
        if all(code == 0 for code in codes):
            return "Succeeded"
        return "Failed" if policy == "Never" else "Running"
    return "Running"


def make_status(
    pod: Object,
    inits: Sequence[Container],
    mains: Sequence[Container],
    *,
    address: str,
    host: str,
    started_at: str,
    now: str,
) -> Object:
    """Return the whole status that a kubelet publishes."""
    phase = make_phase(pod, inits, mains)
    done = phase in ("Succeeded", "Failed")
    initialized = all(c.exit_code == 0 for c in inits)
    ready = phase == "Running" and all(c.ready for c in mains)
    truths = {
        "PodReadyToStartContainers": bool(address) and not done,
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    before = {c["type"]: c for c in pod.get("status", {}).get("conditions") or []}
    unready = [c.name for c in mains if not c.ready]
    status: Object = {
        "phase": phase,
        "qosClass": pod.get("status", {}).get("qosClass", "BestEffort"),
        "conditions": [
            _condition(kind, truth, before.get(kind), unready, done=done, now=now)
            for kind, truth in truths.items()
        ]
        # Others write conditions too, such as that it is evicted.
        + [condition for kind, condition in before.items() if kind not in truths],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": started_at,
        "containerStatuses": [_shown(c) for c in mains],
    }
    if inits:
        status["initContainerStatuses"] = [_shown(c, init=True) for c in inits]
    if address:
        status["podIP"] = address
        status["podIPs"] = [{"ip": address}]
    return status


def _condition(
    kind: str, truth: bool, before: Object | None, unready: list[str], *, done: bool, now: str
) -> Object:
    value = "True" if truth else "False"
    changed = before is None or before["status"] != value
    since = now if changed or before is None else before["lastTransitionTime"]
    condition: Object = {"type": kind, "status": value, "lastTransitionTime": since}
    if not truth and kind in ("Ready", "ContainersReady"):
        condition["reason"] = "PodCompleted" if done else "ContainersNotReady"
        if not done:
            condition["message"] = f"containers with unready status: [{' '.join(unready)}]"
    if not truth and kind == "Initialized":
        condition["reason"] = "ContainersNotInitialized"
    return condition


def _shown(container: Container, *, init: bool = False) -> Object:
    shown: Object = {
        "name": container.name,
        "image": container.image,
        "imageID": container.image if container.identifier else "",
        "state": container.state,
        "lastState": container.last_state,
        "ready": container.exit_code == 0 if init else container.ready,
        "started": container.running and container.started,
        "restartCount": container.restarts,
    }
    if container.identifier:
        shown["containerID"] = container.identifier
    return shown
