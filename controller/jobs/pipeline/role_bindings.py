"""The RoleBindings that give our accounts their rights in an owner's namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from controller.jobs.pipeline.builder import SharedObject
from controller.site.owner_shares import RoleGrant

_RBAC: Final = "rbac.authorization.k8s.io"


def role_bindings(grants: Iterable[RoleGrant], namespace: str) -> Iterator[SharedObject]:
    """Yield a RoleBinding in *namespace* for each grant."""
    for grant in grants:
        role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": grant.role}
        subject = {"kind": "ServiceAccount", "name": grant.account, "namespace": grant.namespace}
        yield SharedObject(
            kind="RoleBinding",
            name=f"fumarole.{grant.role}",
            namespace=namespace,
            manifest={"roleRef": role, "subjects": [subject]},
            kept=True,
        )
