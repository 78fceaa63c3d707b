"""Create, update and delete in the API server's way, for every kind alike.

Reads go to the store directly. A write completes and checks the object, and calls the webhooks that
apply to it. It stores the object only if nothing has changed since the decision.
"""

import re
import secrets
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Final

from deploy.local.cluster.apiserver import metadata as meta
from deploy.local.cluster.apiserver import rules
from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.builtin import SEMANTICS, Semantics
from deploy.local.cluster.apiserver.definitions import (
    DEFINITIONS,
    complete_definition,
    definition_problems,
)
from deploy.local.cluster.apiserver.deletion import Deletion, decide_deletion
from deploy.local.cluster.apiserver.errors import (
    ApiError,
    Problem,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from deploy.local.cluster.apiserver.kinds import Kind, KindTable, Object
from deploy.local.cluster.apiserver.options import Options
from deploy.local.cluster.apiserver.rbac import check_grant
from deploy.local.cluster.apiserver.schema import (
    fill_defaults,
    pruned,
    unknown_fields,
    violations,
    without_nulls,
)
from deploy.local.cluster.apiserver.store import Store, Stored
from deploy.local.cluster.apiserver.webhooks import Review, Webhooks

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_PLAIN: Final = Semantics()
_TRIES: Final = 5
_JSON_NAMES: Final = {"integer": "number", "boolean": "bool"}
_GO_NAMES: Final = {"boolean": "bool", "integer": "int32", "number": "float64"}
_ETCD_BYTES: Final = 1_572_864


def now() -> str:
    """Return the time in the format of metadata."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Registry:
    """The writes; `store` holds their results. *services* has the addresses for Services."""

    def __init__(
        self, store: Store, kinds: KindTable, webhooks: Webhooks, services: IPv4Network
    ) -> None:
        self._services = services
        self.store = store
        self.kinds = kinds
        self._webhooks = webhooks

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the object.

        Raises:
            ApiError: 404.
        """
        stored = self.store.get(kind.key, namespace, name)
        if stored is None:
            raise not_found(kind, name)
        return stored

    async def create(
        self, kind: Kind, namespace: str, body: Object, *, user: User, options: Options
    ) -> Stored:
        """Store a new object and return it as stored."""
        self._check_envelope(kind, namespace, body)
        if body["metadata"].get("resourceVersion"):
            why = "resourceVersion should not be set on objects to be created"
            raise ApiError(500, why, reason="")
        value = {**body, "metadata": meta.clean_new(kind, body["metadata"])}
        self._identify(kind, namespace, value)
        name = value["metadata"].get("name", "")
        rules.check_namespace(self.store, self.kinds, kind, namespace, name)
        if kind.status:
            value.pop("status", None)
        value = self._completed(kind, value, None, options)
        review = Review(kind, "CREATE", None, user.info, options.dry_run)
        value = self._completed(kind, await self._webhooks.mutate(review, value), None, options)
        rules.admit(self.store, kind, value, self._services)
        check_grant(self.store, kind, value, user)
        self._check(kind, value, None)
        await self._webhooks.validate(review, value)
        if (there := self.store.get(kind.key, namespace, name)) is not None:
            going = bool(there.value["metadata"].get("deletionTimestamp"))
            generated = bool(value["metadata"].get("generateName"))
            raise already_exists(kind, name, going=going, generated=generated)
        if kind.generation:
            value["metadata"]["generation"] = 1
        return self._put(kind, value, options)

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        user: User,
        options: Options,
        subresource: str = "",
        whole: bool = False,
    ) -> Stored:
        """Store the object that *change* returns; *whole* means that it is a replacement."""
        for _ in range(_TRIES):
            stored = self.get(kind, namespace, name)
            body = change(stored.copy())
            self._check_envelope(kind, namespace, body)
            _check_basis(kind, stored.value, body, whole=whole)
            value = _carried(kind, stored.value, body, subresource)
            value = await self._admitted(kind, value, stored.value, user, options, subresource)
            # The object may have changed while webhooks were called. Then the decision is void. In
            # the next round a write that names a revision is refused, and another write succeeds.
            if self.get(kind, namespace, name) is stored:
                return self._updated(kind, value, stored, options)
        raise conflict(kind, name)

    async def _admitted(
        self,
        kind: Kind,
        value: Object,
        old: Object,
        user: User,
        options: Options,
        subresource: str,
    ) -> Object:
        value = self._completed(kind, value, old, options)
        review = Review(kind, "UPDATE", old, user.info, options.dry_run)
        if subresource == "status":
            self._check(kind, value, old)
            return value
        value = await self._webhooks.mutate(review, value)
        check_grant(self.store, kind, value, user)
        self._check(kind, value, old)
        await self._webhooks.validate(review, value)
        return value

    def _updated(self, kind: Kind, value: Object, stored: Stored, options: Options) -> Stored:
        old = stored.value
        if value == old:
            return stored
        if kind.generation and _substance(value) != _substance(old):
            value["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self._put(kind, value, options)

    async def delete(
        self, kind: Kind, namespace: str, name: str, wish: Object, *, user: User
    ) -> tuple[Stored, Deletion]:
        """Delete the object, or begin to; return its last state and how far the deletion went."""
        stored = self.get(kind, namespace, name)
        dry_run = bool(wish.get("dryRun"))
        review = Review(kind, "DELETE", stored.value, user.info, dry_run)
        await self._webhooks.validate(review, None)
        stored = self.get(kind, namespace, name)
        decision = decide_deletion(kind, stored.copy(), wish, datetime.now(UTC))
        if dry_run:
            return stored, decision
        if decision.gone:
            if decision.value != stored.value:
                # A Pod is marked as terminating, and then removed: two writes, and a watch sees
                # both.
                stored = self.store.put(kind.key, decision.value)
            return self.store.remove(kind.key, stored), decision
        if decision.value == stored.value:
            return stored, decision
        return self.store.put(kind.key, decision.value), decision

    def _put(self, kind: Kind, value: Object, options: Options) -> Stored:
        metadata = value["metadata"]
        tried = Stored.of(value)
        if len(tried.raw) > _ETCD_BYTES:
            raise ApiError(500, "etcdserver: request is too large", reason="")
        if options.dry_run:
            return tried
        going = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        # Namespaces also wait for their controller, and Pods on a node for their kubelet.
        waits = (value.get("spec") or {}).get("finalizers") or metadata.get(
            "deletionGracePeriodSeconds"
        )
        stored = self.store.put(kind.key, value)
        return self.store.remove(kind.key, stored) if going and not waits else stored

    def _check_envelope(self, kind: Kind, namespace: str, body: Object) -> None:
        body.setdefault("apiVersion", kind.api_version)
        body.setdefault("kind", kind.kind)
        if (body["apiVersion"], body["kind"]) != (kind.api_version, kind.kind):
            raise _wrong_kind(self.kinds, kind, body)
        metadata = body.setdefault("metadata", {})
        meta.check_shape(kind, metadata)
        if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )

    def _identify(self, kind: Kind, namespace: str, value: Object) -> None:
        metadata = value["metadata"]
        if not kind.namespaced:
            metadata.pop("namespace", None)
        prefix = metadata.get("generateName")
        while prefix and not metadata.get("name"):
            name = prefix[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
            if self.store.get(kind.key, namespace, name) is None:
                metadata["name"] = name
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = now()

    def _completed(self, kind: Kind, value: Object, old: Object | None, options: Options) -> Object:
        if not kind.custom:
            value = without_nulls(value)
        if kind.schema is not None:
            unknown = list(unknown_fields(kind.schema, value))
            if unknown and options.strict:
                listed = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {listed}"
                )
            value = pruned(kind.schema, value)
            fill_defaults(kind.schema, value)
            if not kind.custom:
                _check_types(kind, value)
        SEMANTICS.get(kind.key, _PLAIN).complete(value, old)
        if kind.key == DEFINITIONS and old is None and not list(definition_problems(value)):
            complete_definition(value, now())
        return value

    def _check(self, kind: Kind, value: Object, old: Object | None) -> None:
        problems = [*meta.problems(kind, value["metadata"]), *self._own_problems(kind, value, old)]
        if old is not None:
            problems += meta.finalizer_problems(old["metadata"], value["metadata"])
        if problems:
            raise invalid(kind, value["metadata"].get("name", ""), list(dict.fromkeys(problems)))

    def _own_problems(self, kind: Kind, value: Object, old: Object | None) -> Iterator[Problem]:
        if kind.schema is not None:
            found = violations(kind.schema, value)
            # A built-in status is not checked. Only the Required of its other fields applies here.
            # Metadata has been checked, in other words.
            unchecked = ("metadata",) if kind.custom else ("metadata", "status")
            kept = [p for p in found if not p.field.startswith(unchecked)]
            yield from map(_as_ratcheted, kept) if old is not None else kept
        if kind.key == DEFINITIONS:
            yield from definition_problems(value)
        yield from SEMANTICS.get(kind.key, _PLAIN).check(value, old)


def _carried(kind: Kind, old: Object, body: Object, subresource: str) -> Object:
    """Return *body* with the fields that this kind of write cannot change taken from *old*."""
    metadata = meta.carried_over(old["metadata"], body["metadata"])
    if subresource == "status":
        # As on a real server, a write of a Pod's status also changes labels and annotations.
        kept = metadata if kind.key == ("", "pods") else dict(old["metadata"])
        value = {**old, "metadata": kept}
        value.pop("status", None)
        return {**value, "status": body["status"]} if "status" in body else value
    value = {**body, "metadata": metadata}
    if kind.status:
        value.pop("status", None)
        if "status" in old:
            value["status"] = old["status"]
    return value


def _substance(value: Object) -> Object:
    return {k: v for k, v in value.items() if k not in ("metadata", "status")}


def _check_types(kind: Kind, value: Object) -> None:
    """Refuse an object with wrong types, which a real server could not decode (400)."""
    found = violations(kind.schema or {}, value)
    wrong = next((p for p in found if p.reason == "FieldValueTypeInvalid"), None)
    if wrong is None:
        return
    *_, wanted, got = wrong.message.replace('"', "").replace(":", "").split()
    path = re.sub(r"\[\d+\]", "", wrong.field).split(".")
    # Go names the struct that holds the field: the object, its spec, or an item of a list.
    outer = path[-2] if len(path) > 1 else ""
    struct = {"": "", "spec": "Spec"}.get(outer)
    named = f"{kind.kind}{struct}" if struct is not None else outer.removesuffix("s").capitalize()
    raise bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: cannot '
        f"unmarshal {_JSON_NAMES.get(got, got)} into Go struct field {named}.{'.'.join(path)} of "
        f"type {_GO_NAMES.get(wanted, wanted)}"
    )


def _as_ratcheted(problem: Problem) -> Problem:
    """Return *problem* as in an update: unchanged parts are accepted, so fields stand alone."""
    if problem.reason != "FieldValueTypeInvalid":
        return problem
    alone = problem.field.rpartition(".")[2]
    message = problem.message.replace(f" {problem.field} in body", f" {alone} in body")
    return replace(problem, message=message)


def _wrong_kind(kinds: KindTable, kind: Kind, body: Object) -> ApiError:
    version, name = body["apiVersion"], body["kind"]
    where = f'{name} in version "{version.rpartition("/")[2]}" cannot be handled as a {kind.kind}'
    if kinds.named(version, name):
        package = version.rpartition("/")[2]
        why = f"converting ({package}.{name}) to (core.{kind.kind}): unknown conversion"
    else:
        scheme = "pkg/api/legacyscheme/scheme.go:30"
        why = f'no kind "{name}" is registered for version "{version}" in scheme "{scheme}"'
    return bad_request(f"{where}: {why}")


def _check_basis(kind: Kind, old: Object, body: Object, *, whole: bool) -> None:
    """Refuse a write for another object, or from an older revision."""
    given, is_now = body["metadata"], old["metadata"]
    name = is_now["name"]
    if given.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
        )
    if given.get("uid", is_now["uid"]) != is_now["uid"]:
        raise _other_uid(kind, given["uid"], is_now, whole=whole)
    revision = given.get("resourceVersion")
    if revision and revision != is_now["resourceVersion"]:
        raise conflict(kind, name)
    if whole and kind.custom and not revision:
        raise ApiError(
            422,
            f'{kind.resource} "{name}" is invalid: metadata.resourceVersion: Invalid value: 0: '
            "must be specified for an update",
            details={
                "name": name,
                "group": kind.group,
                "kind": kind.plural,
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "message": "Invalid value: 0: must be specified for an update",
                        "field": "metadata.resourceVersion",
                    }
                ],
            },
        )


def _other_uid(kind: Kind, uid: str, is_now: Object, *, whole: bool) -> ApiError:
    name = is_now["name"]
    if not whole:
        problem = Problem.invalid("metadata.uid", uid, "field is immutable")
        return invalid(kind, name, [problem, problem])
    key = "/".join(filter(None, (kind.plural, is_now.get("namespace"), name)))
    return conflict(
        kind,
        name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object "
        f"meta: {is_now['uid']}",
    )
