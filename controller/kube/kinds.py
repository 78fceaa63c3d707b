"""The resources that the controller calls; ``client.path_of`` returns the path of each."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A resource; ``api`` is its group and version (``v1`` for the core group)."""

    api: str
    plural: str
    kind: str
    namespaced: bool = True


NAMESPACES = Kind("v1", "namespaces", "Namespace", namespaced=False)
NODES = Kind("v1", "nodes", "Node", namespaced=False)
PODS = Kind("v1", "pods", "Pod")
SECRETS = Kind("v1", "secrets", "Secret")
CONFIG_MAPS = Kind("v1", "configmaps", "ConfigMap")
SERVICES = Kind("v1", "services", "Service")
SERVICE_ACCOUNTS = Kind("v1", "serviceaccounts", "ServiceAccount")
PERSISTENT_VOLUME_CLAIMS = Kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
RESOURCE_QUOTAS = Kind("v1", "resourcequotas", "ResourceQuota")
EVENTS = Kind("v1", "events", "Event")
LEASES = Kind("coordination.k8s.io/v1", "leases", "Lease")
NETWORK_POLICIES = Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io/v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
ROLE_BINDINGS = Kind("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False
)
VCJOBS = Kind("batch.volcano.sh/v1alpha1", "jobs", "Job")
COMMANDS = Kind("bus.volcano.sh/v1alpha1", "commands", "Command")
QUEUES = Kind("scheduling.volcano.sh/v1beta1", "queues", "Queue", namespaced=False)
POD_GROUPS = Kind("scheduling.volcano.sh/v1beta1", "podgroups", "PodGroup")
POD_METRICS = Kind("metrics.k8s.io/v1beta1", "pods", "PodMetrics")
