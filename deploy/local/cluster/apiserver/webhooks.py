"""Admission webhooks: which ones a write calls, and what their responses mean."""

import base64
import secrets
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import aiohttp
import msgspec

from deploy.local.cluster.apiserver.errors import ApiError, bad_request
from deploy.local.cluster.apiserver.kinds import ADMISSION, Kind, Object
from deploy.local.cluster.apiserver.patch import JSON, patched
from deploy.local.cluster.apiserver.selectors import make_selector
from deploy.local.cluster.apiserver.store import Store

Operation = Literal["CREATE", "UPDATE", "DELETE"]
_MUTATING: Final = (ADMISSION, "mutatingwebhookconfigurations")
_VALIDATING: Final = (ADMISSION, "validatingwebhookconfigurations")
_WITHOUT_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True)
class Review:
    """A write to review: its user, the object that it replaces, and whether it is a dry run."""

    kind: Kind
    operation: Operation
    old: Object | None
    user: Object
    dry_run: bool


class Webhooks:
    """Calls the webhooks that are configured in the store; closed with `close`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()

    async def mutate(self, review: Review, new: Object) -> Object:
        """Return *new* as mutating webhooks change it.

        Raises:
            ApiError: If a webhook denies it (its code, else 400), cannot be called (500), or has
                side effects in a dry run (400).
        """
        for hook in self._hooks(_MUTATING, review):
            if _matches(hook, new):
                answer = await self._ask(hook, review, new)
                if patch := answer.get("patch"):
                    new = patched(JSON, new, msgspec.json.decode(base64.b64decode(patch)))
        return new

    async def validate(self, review: Review, new: Object | None) -> None:
        """Call the validating webhooks.

        Raises:
            ApiError: As `mutate`.
        """
        for hook in self._hooks(_VALIDATING, review):
            if _matches(hook, new or review.old or {}):
                await self._ask(hook, review, new)

    def _hooks(self, key: tuple[str, str], review: Review) -> Iterator[Object]:
        for configuration in self._store.items(key):
            for hook in configuration.value.get("webhooks") or []:
                if any(_rule_matches(rule, review) for rule in hook.get("rules") or []):
                    yield hook

    async def _ask(self, hook: Object, review: Review, new: Object | None) -> Object:
        if review.dry_run and hook.get("sideEffects") not in _WITHOUT_SIDE_EFFECTS:
            raise bad_request(f'admission webhook "{hook["name"]}" does not support dry run')
        try:
            answer = await self._post(hook, _request(review, new))
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


def _request(review: Review, new: Object | None) -> Object:
    kind, metadata = review.kind, (new or review.old or {})["metadata"]
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)),
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": review.operation,
            "userInfo": review.user,
            "object": new,
            "oldObject": review.old,
            "dryRun": review.dry_run,
        },
    }


def _denial(hook: Object, response: Object) -> ApiError:
    status = response.get("status") or {}
    said = status.get("message") or status.get("reason") or ""
    text = f'admission webhook "{hook["name"]}" denied the request'
    message = f"{text}: {said}" if said else f"{text} without explanation"
    # The message is the webhook's own, or none: a denial has no reason of the server's.
    return ApiError(status.get("code") or 400, message, reason=status.get("reason") or "")


def _rule_matches(rule: Object, review: Review) -> bool:
    def named(field: str, value: str) -> bool:
        return bool({value, "*"} & set(rule.get(field) or []))

    return (
        named("operations", review.operation)
        and named("apiGroups", review.kind.group)
        and named("apiVersions", review.kind.version)
        and named("resources", review.kind.plural)
    )


def _matches(hook: Object, value: Object) -> bool:
    labels = (hook.get("objectSelector") or {}).get("matchLabels") or {}
    text = ",".join(f"{name}={wanted}" for name, wanted in labels.items())
    return make_selector(text, "")(value)
