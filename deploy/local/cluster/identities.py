"""The identities of the embedded cluster and their rights. Each gets a kubeconfig.

``rules`` are those of an RBAC ClusterRole. The controller's rules are what the product asks for in
production: no Secret is read, no namespace deleted. The server also applies the roles and bindings
that are stored in it.
"""

from typing import Any, Final

_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "update", "patch", "delete"]

IDENTITIES: Final[dict[str, dict[str, Any]]] = {
    "admin": {
        "user": "kubernetes-admin",
        "groups": ["system:masters"],
        "rules": [],
    },
    "controller": {
        "user": "system:serviceaccount:fumarole-system:controller",
        "groups": ["system:serviceaccounts"],
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": [*_READ, "create", "patch"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": _WRITE},
            {"apiGroups": [""], "resources": ["pods/log", "nodes"], "verbs": _READ},
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": [*_READ, "delete", "patch"]},
            {
                "apiGroups": [""],
                "resources": [
                    "configmaps",
                    "events",
                    "persistentvolumeclaims",
                    "resourcequotas",
                    "serviceaccounts",
                    "services",
                ],
                "verbs": [*_READ, *_WRITE],
            },
            {
                "apiGroups": ["networking.k8s.io"],
                "resources": ["networkpolicies"],
                "verbs": [*_READ, *_WRITE],
            },
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": [*_READ, *_WRITE],
            },
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["rolebindings"],
                "verbs": [*_READ, *_WRITE],
            },
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
            # Without this, an account can bind only roles whose rights it has itself.
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["clusterroles"],
                "verbs": ["bind"],
            },
            {
                "apiGroups": ["batch.volcano.sh", "bus.volcano.sh", "scheduling.volcano.sh"],
                "resources": ["jobs", "commands", "queues", "podgroups"],
                "verbs": [*_READ, *_WRITE],
            },
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": _READ,
            },
        ],
    },
    "volcano": {
        "user": "system:serviceaccount:volcano-system:volcano",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:volcano-system"],
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    },
    "kubelet": {
        "user": "system:node:embedded",
        "groups": ["system:nodes"],
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps", "secrets", "serviceaccounts", "services"],
                "verbs": _READ,
            },
            # The work of a storage provisioner in a real cluster.
            {
                "apiGroups": ["", "storage.k8s.io"],
                "resources": [
                    "persistentvolumeclaims",
                    "persistentvolumeclaims/status",
                    "persistentvolumes",
                    "persistentvolumes/status",
                    "storageclasses",
                ],
                "verbs": [*_READ, *_WRITE],
            },
            # What kube-proxy, the name server and the network plugin read in a real cluster.
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": _READ},
            {
                "apiGroups": ["networking.k8s.io"],
                "resources": ["networkpolicies"],
                "verbs": _READ,
            },
            {
                "apiGroups": [""],
                "resources": ["nodes", "nodes/status", "pods", "pods/status", "events"],
                "verbs": [*_READ, *_WRITE],
            },
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": [*_READ, *_WRITE],
            },
        ],
    },
    # Their rights come from the manifests of deploy/kubernetes, once those are created.
    "account-controller": {
        "user": "system:serviceaccount:fumarole-system:fumarole-controller",
        "groups": ["system:serviceaccounts"],
        "rules": [],
    },
    "account-hub": {
        "user": "system:serviceaccount:fumarole-system:fumarole-hub",
        "groups": ["system:serviceaccounts"],
        "rules": [],
    },
    "nobody": {"user": "nobody", "groups": [], "rules": []},
}
