"""Deletes objects, and knows what proves that one is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.kube.client import Kube
from controller.kube.errors import Conflict, Forbidden, NotFound, NotServed
from controller.kube.kinds import NAMESPACES, Kind


async def delete(kube: Kube, kind: Kind, name: str, namespace: str, uid: str) -> None:
    """Delete exactly this object; another object of its name stays, which is no error.

    Raises:
        Conflict: If it still exists. A webhook, or a server with a stale cache, responds 409,
            too; an object that is taken for gone is never deleted again.
    """
    try:
        await kube.delete(kind, name, namespace, uid=uid)
    except Conflict:
        try:
            found = await kube.get(kind, name, namespace)
        except NotServed:
            raise
        except (NotFound, Forbidden):
            return  # some kinds may be deleted but not read
        if found["metadata"].get("uid") == uid:
            raise


@asynccontextmanager
async def unless_gone(kube: Kube, namespace: str) -> AsyncIterator[None]:
    """Suppress the errors of the block if its object is gone, alone or with *namespace*.

    The controller's permissions in an owner's namespace are objects in it, and are deleted with
    it. The API server then forbids all reads there. The missing namespace is the evidence that
    the object is gone.
    """
    try:
        yield
    except NotServed:
        raise
    except NotFound:
        return
    except Forbidden:
        try:
            await kube.get(NAMESPACES, namespace)
        except NotFound:
            return
        raise


@asynccontextmanager
async def unless_going(kube: Kube, namespace: str) -> AsyncIterator[None]:
    """As :func:`unless_gone`, for a deletion, also if *namespace* is being deleted.

    That cannot be revoked, and deletes all objects of the namespace. The namespace itself may
    stay for days: an object with a finalizer keeps it, or an API that is unavailable.
    """
    try:
        async with unless_gone(kube, namespace):
            yield
    except Forbidden:
        found = await kube.get(NAMESPACES, namespace)
        if not found["metadata"].get("deletionTimestamp"):
            raise
