"""The table of kinds: their names, and the few properties in which kinds differ.

Nothing else in the server refers to a kind by name, except the rules of Pods, Secrets, Namespaces
and Services in `builtin`, to which the table refers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.cluster.apiserver.models import schema_of

Object = dict[str, Any]
Columns = tuple[tuple[str, str], ...]
"""A column of `kubectl get`: a title, and the path of the value in the object."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind in one version, as its group serves it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False
    """Whether /status is a subresource: then only that writes ``status``."""
    generation: bool = False
    """Whether ``metadata.generation`` counts the changes outside of the status."""
    schema: Object | None = None
    """A structural schema. Without one, fields are accepted as they are."""
    columns: Columns = ()
    wide: Columns = ()
    """Further columns, for ``-o wide``."""
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = (
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    )
    upsert: bool = False
    """Whether a PUT creates an object that does not exist."""
    custom: bool = False

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``plural.group``, as messages write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def key(self) -> tuple[str, str]:
        """The key for store and rules: all versions of a kind share their objects."""
        return self.group, self.plural


class KindTable:
    """The kinds that are served now. Custom kinds are added and removed."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds}

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind behind a path, or None."""
        return self._kinds.get((group, version, plural))

    def named(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an object or reference names, or None."""
        matching = (k for k in self._kinds.values() if k.kind == kind)
        return next((k for k in matching if k.api_version == api_version), None)

    def by_key(self, key: tuple[str, str]) -> Kind:
        """Return the kind with the store's key *key*."""
        return next(kind for kind in self._kinds.values() if kind.key == key)

    def add(self, kind: Kind) -> None:
        """Serve *kind* from now on, in place of the kind at its path."""
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: Kind) -> None:
        """Stop serving *kind*."""
        self._kinds.pop((kind.group, kind.version, kind.plural), None)


_NAME: Final = ("Name", "metadata.name")
_AGE: Final = ("Age", "metadata.creationTimestamp")
RBAC: Final = "rbac.authorization.k8s.io"
ADMISSION: Final = "admissionregistration.k8s.io"


def _kind(group: str, version: str, name: str, plural: str, **rest: Any) -> Kind:
    columns = (_NAME, *rest.pop("columns", ()), _AGE)
    return Kind(group, version, name, plural, columns=columns, schema=schema_of(name), **rest)


def make_builtin_kinds() -> list[Kind]:
    """Return the kinds that are served without a definition."""
    return [
        _kind(
            "",
            "v1",
            "Namespace",
            "namespaces",
            namespaced=False,
            short=("ns",),
            status=True,
            columns=(("Status", "status.phase"),),
        ),
        _kind(
            "",
            "v1",
            "Node",
            "nodes",
            namespaced=False,
            short=("no",),
            status=True,
            columns=(("Status", "=node_status"), ("Version", "status.nodeInfo.kubeletVersion")),
        ),
        _kind(
            "",
            "v1",
            "Pod",
            "pods",
            short=("po",),
            status=True,
            generation=True,
            subresources=("binding", "eviction", "exec", "log"),
            columns=(
                ("Ready", "=pod_ready"),
                ("Status", "=pod_status"),
                ("Restarts", "=pod_restarts"),
            ),
            wide=(("IP", "status.podIP"), ("Node", "spec.nodeName")),
        ),
        _kind(
            "",
            "v1",
            "Service",
            "services",
            short=("svc",),
            status=True,
            columns=(
                ("Type", "spec.type"),
                ("Cluster-IP", "spec.clusterIP"),
                ("Port(s)", "=service_ports"),
            ),
        ),
        _kind(
            "", "v1", "ServiceAccount", "serviceaccounts", short=("sa",), subresources=("token",)
        ),
        _kind(
            "", "v1", "ConfigMap", "configmaps", short=("cm",), columns=(("Data", "=data_count"),)
        ),
        _kind(
            "",
            "v1",
            "Secret",
            "secrets",
            columns=(("Type", "type"), ("Data", "=data_count")),
        ),
        Kind(
            "",
            "v1",
            "Event",
            "events",
            schema=schema_of("Event"),
            short=("ev",),
            columns=(
                ("Last Seen", "lastTimestamp"),
                ("Type", "type"),
                ("Reason", "reason"),
                ("Object", "=event_object"),
                ("Message", "message"),
            ),
        ),
        _kind(
            "",
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            short=("pvc",),
            status=True,
            columns=(("Status", "status.phase"), ("Volume", "spec.volumeName")),
        ),
        _kind(
            "",
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            namespaced=False,
            short=("pv",),
            status=True,
            columns=(("Status", "status.phase"), ("StorageClass", "spec.storageClassName")),
        ),
        _kind(
            "storage.k8s.io",
            "v1",
            "StorageClass",
            "storageclasses",
            namespaced=False,
            short=("sc",),
            columns=(("Provisioner", "provisioner"),),
        ),
        _kind("", "v1", "ResourceQuota", "resourcequotas", short=("quota",), status=True),
        _kind(
            "coordination.k8s.io",
            "v1",
            "Lease",
            "leases",
            upsert=True,
            columns=(("Holder", "spec.holderIdentity"),),
        ),
        _kind(
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
            short=("netpol",),
            generation=True,
        ),
        _kind(
            "scheduling.k8s.io",
            "v1",
            "PriorityClass",
            "priorityclasses",
            namespaced=False,
            short=("pc",),
            columns=(("Value", "value"),),
        ),
        _kind(RBAC, "v1", "Role", "roles"),
        _kind(RBAC, "v1", "RoleBinding", "rolebindings"),
        _kind(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
        _kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
        _kind(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            namespaced=False,
            short=("crd",),
            status=True,
            generation=True,
        ),
        *(
            _kind(ADMISSION, "v1", name, plural, namespaced=False, generation=True)
            for name, plural in (
                ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
                ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
            )
        ),
    ]
