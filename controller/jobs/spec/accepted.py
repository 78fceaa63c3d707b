"""A job as it is stored: the accepted spec, with its secrets apart, sealed until it is over.

The secrets must outlive a crash between acceptance and submission, and a Secret in the cluster
cannot be read back. So they are in the store, sealed (AES-256-GCM) with a key that is derived from
the link key, and bound to the job's id. They are deleted when the job is over. The store alone
reveals none.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError

from controller.jobs.spec.model import DEFAULT_TASK, Job, OwnerKey, ToolJob
from controller.jobs.spec.parameters import SECRET_FIELDS
from controller.jobs.spec.problems import JobRejected, Problem, problems_of
from controller.store.errors import StoreError
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.names import is_tool
from controller.volcano.policies import RESTARTS
from shared.link import derive_key

_NONCE_BYTES: Final = 12


class VaultClosed(StoreError):
    """The sealed text is damaged, belongs to another job, or was made with a removed key."""


class Vault:
    """Seals with the first of the link keys, and opens with any."""

    __slots__ = ("_ciphers", "_macs")

    def __init__(self, link_keys: Sequence[bytes]) -> None:
        self._ciphers = [AESGCM(derive_key(key, "stored secrets")) for key in link_keys]
        self._macs = [derive_key(key, "secrets' fingerprints") for key in link_keys]

    def __repr__(self) -> str:
        return "Vault(…)"

    def seal(
        self, job_id: str, secrets: Mapping[str, str], *, random: Callable[[int], bytes]
    ) -> bytes:
        """Return *secrets* so that only :meth:`open` can read them."""
        nonce = random(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, _plain(secrets), _bound_to(job_id))

    def open(self, job_id: str, sealed: bytes) -> dict[str, str]:
        """Return the secrets that were sealed for the job.

        Raises:
            VaultClosed: If they cannot be read.
        """
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                secrets: dict[str, str] = json.loads(cipher.decrypt(nonce, text, _bound_to(job_id)))
            except (InvalidTag, ValueError):
                continue
            return secrets
        raise VaultClosed("the job's secrets cannot be read: is the link key another one?")

    def fingerprint(self, job_id: str, secrets: Mapping[str, str]) -> bytes:
        """Return a digest that distinguishes these secrets, and reveals nothing without the key."""
        return self._fingerprint(self._macs[0], job_id, secrets)

    def matches(self, job_id: str, secrets: Mapping[str, str], fingerprint: bytes) -> bool:
        """Return whether *fingerprint* was made of these secrets."""
        made = [self._fingerprint(key, job_id, secrets) for key in self._macs]
        return any(hmac.compare_digest(one, fingerprint) for one in made)

    @staticmethod
    def _fingerprint(key: bytes, job_id: str, secrets: Mapping[str, str]) -> bytes:
        return hmac.digest(key, _bound_to(job_id) + b"\0" + _plain(secrets), hashlib.sha256)


def _plain(secrets: Mapping[str, str]) -> bytes:
    return json.dumps(dict(secrets), sort_keys=True).encode()


def _bound_to(job_id: str) -> bytes:
    return f"fumarole:secrets:{job_id}".encode()


# The accepted spec


_UNKNOWN: Final = "(unknown)"


def public_spec(job: Job) -> dict[str, Any]:
    """Return the job as JSON, without values of secrets and without defaults.

    Two equal jobs have the same spec, however they were written.
    """
    spec = job.model_dump(mode="json", exclude_defaults=True)
    for name in job.secrets():
        _withhold(spec["parameters"][name])
    return spec


def is_as_requested(spec: Mapping[str, Any], requested: Job) -> bool:
    """Return whether *spec* is the stored form of *requested*, apart from filled-in fields."""
    stored = public_spec(requested)
    # A newer version may store a job in another form.
    if stored == spec or not isinstance(spec, Mapping) or "filled" not in spec:
        return stored == spec
    left = copy.deepcopy({name: value for name, value in spec.items() if name != "filled"})
    for path in spec["filled"]:
        *outer, name = path.split(".")
        fields: Any = left
        for one in outer:
            fields = fields.get(one) if isinstance(fields, dict) else None
        if isinstance(fields, dict):
            fields.pop(name, None)
    if not left.get("parameters"):
        left.pop("parameters", None)
    return stored == left


def read_spec(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> Job:
    """Return the job of which *spec* is the :func:`public_spec`.

    A secret that is not among *secrets* gets a placeholder: such a job can be shown, but not
    submitted (see :func:`lacks_secrets`).

    Raises:
        JobRejected: If it was changed, or written by a newer version with more fields.
    """
    try:
        return model_of(spec["id"]).model_validate(filled_in(spec, secrets))
    except ValidationError as error:
        raise JobRejected(problems_of(error)) from None
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise JobRejected([Problem("", "is not a stored job")]) from error


def model_of(job_id: str) -> type[Job]:
    """Return the model for this identifier: a job's, or that of a tool's run."""
    return ToolJob if is_tool(job_id) else Job


def filled_in(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return *spec* with the values of its secrets, or placeholders for unknown ones."""
    parameters = {
        name: _with_value(name, given, secrets)
        for name, given in (spec.get("parameters") or {}).items()
    }
    return {**spec, "parameters": parameters} if parameters else dict(spec)


def lacks_secrets(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> bool:
    """Return whether a secret parameter of the job is not among *secrets*."""
    return any(
        _is_withheld(given) and name not in secrets
        for name, given in (spec.get("parameters") or {}).items()
    )


def has_policies(spec: Mapping[str, Any]) -> bool:
    """Return whether the job or one of its tasks has a policy; cheap."""
    return _has_policy(spec, lambda _policy: True)


def has_delayed(spec: Mapping[str, Any]) -> bool:
    """Return whether a policy of the job has a timeout; cheap."""
    return _has_policy(spec, lambda policy: bool(policy.get("timeout_seconds")))


def may_restart(spec: Mapping[str, Any]) -> bool:
    """Return whether a policy of the job restarts anything; cheap."""
    return _has_policy(spec, lambda policy: policy.get("action") in RESTARTS)


def has_a_task(spec: object, names: Collection[str]) -> bool:
    """Return whether a job stored as *spec*, in whatever form, has one of the tasks."""
    tasks: object = spec.get("tasks") if isinstance(spec, Mapping) else ()
    if not tasks and isinstance(spec, Mapping):
        return DEFAULT_TASK in names
    given = [one for one in tasks if isinstance(one, Mapping)] if isinstance(tasks, list) else []
    return any(one.get("name") in list(names) for one in given)


def output_of(spec: object) -> str | None:
    """Return the output of a job stored as *spec*, in whatever form; None without one."""
    output = spec.get("output") if isinstance(spec, Mapping) else None
    return output if isinstance(output, str) else None


def owner_of(record: JobRecord) -> OwnerKey:
    """Return the project of a stored job, or the user if there is none."""
    if record.owner_project is not None:
        return OwnerKey("project", record.owner_project)
    return OwnerKey("user", record.owner_user)


def _has_policy(spec: Mapping[str, Any], wanted: Callable[[Mapping[str, Any]], bool]) -> bool:
    try:
        lists = [spec.get("policies")]
        lists += [task.get("policies") for task in spec.get("tasks") or ()]
        return any(wanted(policy) for policies in lists for policy in policies or ())
    except (AttributeError, TypeError):
        return False  # written by a version that stores jobs in another form


def _withhold(given: dict[str, Any]) -> None:
    if given["type"] == "secret":
        del given["value"]
    else:
        # A licence without a key has no field ``key``; null says that there is one.
        given["key"] = None


def _is_withheld(given: Any) -> bool:
    if not isinstance(given, dict):
        return False
    return given.get("type") == "secret" or (given.get("type") == "licence" and "key" in given)


def _with_value(name: str, given: Any, secrets: Mapping[str, str]) -> Any:
    if not _is_withheld(given):
        return given
    field = SECRET_FIELDS[given["type"]]
    return {**given, field: secrets.get(name, _UNKNOWN)}
