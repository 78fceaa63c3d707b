"""Admission webhooks: whom to ask about a write, and what the answers mean."""

import base64
import secrets
import ssl
import uuid
from collections.abc import Iterator
from typing import Any, Final, Literal

import aiohttp
import msgspec

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import ADMISSION, Kind, Object
from deploy.local.cluster.apiserver.patch import JSON, patched
from deploy.local.cluster.apiserver.selectors import make_selector
from deploy.local.cluster.apiserver.store import Store

Operation = Literal["CREATE", "UPDATE", "DELETE"]
_MUTATING: Final = (ADMISSION, "mutatingwebhookconfigurations")
_VALIDATING: Final = (ADMISSION, "validatingwebhookconfigurations")


class Webhooks:
    """Asks the webhooks that are configured in the store; closed with `close`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()

    def concern(self, kind: Kind, operation: Operation) -> bool:
        """Whether any webhook is asked about *operation* on *kind*."""
        return any(
            True for key in (_MUTATING, _VALIDATING) for _ in self._hooks(key, kind, operation)
        )

    async def admit(
        self, kind: Kind, operation: Operation, new: Object | None, old: Object | None, user: Object
    ) -> Object | None:
        """Return *new* as mutating webhooks change it and validating ones let it pass.

        Raises:
            ApiError: If one denies it (its code, else 400) or cannot be asked (500).
        """
        for hook in self._hooks(_MUTATING, kind, operation):
            if _matches(hook, new or old or {}):
                answer = await self._ask(hook, kind, operation, new, old, user)
                patch = answer.get("patch")
                if patch and new is not None:
                    new = patched(JSON, new, msgspec.json.decode(base64.b64decode(patch)))
        for hook in self._hooks(_VALIDATING, kind, operation):
            if _matches(hook, new or old or {}):
                await self._ask(hook, kind, operation, new, old, user)
        return new

    def _hooks(self, key: tuple[str, str], kind: Kind, operation: str) -> Iterator[Object]:
        for configuration in self._store.items(key):
            for hook in configuration.value.get("webhooks") or []:
                if any(_rule_matches(rule, kind, operation) for rule in hook.get("rules") or []):
                    yield hook

    async def _ask(
        self,
        hook: Object,
        kind: Kind,
        operation: Operation,
        new: Object | None,
        old: Object | None,
        user: Object,
    ) -> Object:
        review = _review(kind, operation, new, old, user)
        try:
            answer = await self._post(hook, review)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            if hook.get("failurePolicy") == "Ignore":
                return {}
            raise ApiError(
                500,
                f'Internal error occurred: failed calling webhook "{hook["name"]}": failed to '
                f"call webhook: {error}",
            ) from error
        response: Object = answer.get("response") or {}
        if not response.get("allowed"):
            raise _denial(hook, response)
        return response

    async def _post(self, hook: Object, review: Object) -> Any:
        client = hook["clientConfig"]
        session = self._session(client.get("caBundle", ""))
        timeout = aiohttp.ClientTimeout(total=hook.get("timeoutSeconds") or 10)
        async with session.post(client["url"], json=review, timeout=timeout) as answer:
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read())

    def _session(self, bundle: str) -> aiohttp.ClientSession:
        if bundle not in self._sessions:
            authority = base64.b64decode(bundle).decode() or None
            context = ssl.create_default_context(cadata=authority)
            self._sessions[bundle] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context, limit=32)
            )
        return self._sessions[bundle]


def _review(
    kind: Kind, operation: Operation, new: Object | None, old: Object | None, user: Object
) -> Object:
    metadata = (new or old or {})["metadata"]
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)),
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": operation,
            "userInfo": user,
            "object": new,
            "oldObject": old,
            "dryRun": False,
        },
    }


def _denial(hook: Object, response: Object) -> ApiError:
    status = response.get("status") or {}
    said = status.get("message") or status.get("reason") or ""
    text = f'admission webhook "{hook["name"]}" denied the request'
    message = f"{text}: {said}" if said else f"{text} without explanation"
    return ApiError(status.get("code") or 400, message)


def _rule_matches(rule: Object, kind: Kind, operation: str) -> bool:
    def named(field: str, value: str) -> bool:
        return bool({value, "*"} & set(rule.get(field) or []))

    return (
        named("operations", operation)
        and named("apiGroups", kind.group)
        and named("apiVersions", kind.version)
        and named("resources", kind.plural)
    )


def _matches(hook: Object, value: Object) -> bool:
    labels = (hook.get("objectSelector") or {}).get("matchLabels") or {}
    text = ",".join(f"{name}={wanted}" for name, wanted in labels.items())
    return make_selector(text, "")(value)
