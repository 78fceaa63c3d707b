"""Makes the trial's Secrets: keys, Redis passwords, and an orchestrator's key to sign with.

Runs in the controller's image, as a Job of the trial. All values are derived from one seed, which
is made once: existing Secrets are left as they are, and missing ones are made to fit.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import ssl
import sys
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CALL_SECONDS = 30
BAD, CONFLICT = 400, 409
SEED = "fumarole-seed"
KEY_ID = "trial"
REDIS = "fumarole-redis:6379/0"
INSTANCE = "default"
# deploy/redis/users.acl, which an overlay cannot reach.
USERS = """\
user default off
user controller on #{controller} ~fumarole:{{{instance}}}:* &fumarole:{{{instance}}}:events -@all \
+@connection +@read +@write +@hash +@sortedset +@stream +eval +evalsha +script|load +@transaction \
+publish +spublish -@dangerous -function +info
user gateway on #{gateway} %R~fumarole:{{{instance}}}:routes %R~fumarole:{{{instance}}}:revoked \
%R~fumarole:{{{instance}}}:head %R~fumarole:{{{instance}}}:log ~fumarole:{{{instance}}}:used:* \
%W~fumarole:{{{instance}}}:gateway:* %W~fumarole:{{{instance}}}:activity:* \
%W~fumarole:{{{instance}}}:asks \
&fumarole:{{{instance}}}:events -@all +ping +hmget +hgetall +hscan +zrange +zscan +xrange +multi \
+exec +info +subscribe +ssubscribe +set +get +hset +expire +xadd
"""


def main() -> int:
    """Make the missing Secrets; on a failure, Kubernetes starts the Job again."""
    try:
        for name, values in secrets_of(ensure_seed()).items():
            created = create(name, values)
            print(f"{name}: {'made' if created else 'is there'}", flush=True)
    except (OSError, ValueError, KeyError) as error:
        print(f"the keys could not be made: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def secrets_of(seed: bytes) -> dict[str, dict[str, str]]:
    """Return the Secrets, by name."""

    def derived(what: str) -> bytes:
        return hmac.digest(seed, f"fumarole trial {what}".encode(), "sha256")

    def password(user: str) -> str:
        return derived(f"redis {user}").hex()

    hashes = {user: hashlib.sha256(password(user).encode()).hexdigest()
              for user in ("controller", "gateway")}  # fmt: skip
    key = Ed25519PrivateKey.from_private_bytes(derived("orchestrator"))
    return {
        "fumarole-link-key": {"key": base64.b64encode(derived("link")).decode()},
        "fumarole-grant-key": {"key": base64.b64encode(derived("grant")).decode()},
        "fumarole-redis-users": {"users.acl": USERS.format(**hashes, instance=INSTANCE)},
        "fumarole-controller": {
            "FUMAROLE_REDIS_URL": f"redis://controller:{password('controller')}@{REDIS}"
        },
        "fumarole-gateway": {
            "FUMAROLE_REDIS_URL": f"redis://gateway:{password('gateway')}@{REDIS}"
        },
        "fumarole-orchestrator": {"key.pem": private_pem(key)},
        "fumarole-orchestrator-keys": {"jwks.json": key_set(key)},
    }


def private_pem(key: Ed25519PrivateKey) -> str:
    """Return the key to sign with."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def key_set(key: Ed25519PrivateKey) -> str:
    """Return the JSON Web Key set with its public half (RFC 8037)."""
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    x = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": KEY_ID, "use": "sig", "alg": "EdDSA", "x": x}
    return json.dumps({"keys": [jwk]})


# The API server


def ensure_seed() -> bytes:
    """Return the seed: the one that is there, else a new one."""
    seed = os.urandom(32)
    if create(SEED, {"seed": seed.hex()}):
        return seed
    _, found = call("GET", f"/{SEED}")
    return bytes.fromhex(base64.b64decode(found["data"]["seed"]).decode())


def create(name: str, values: dict[str, str]) -> bool:
    """Make a Secret; return whether it is new."""
    labels = {"app.kubernetes.io/part-of": "fumarole"}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels},
            "stringData": values}  # fmt: skip
    status, _ = call("POST", "", body)
    return status != CONFLICT


def tls(authority: Path) -> ssl.SSLContext:
    """Trust the cluster's authority, also one without key identifiers, as EKS has it.

    Python 3.13 refuses such a one by default; Go's clients do not.
    """
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call the API server about Secrets of this namespace, as a pod's account does.

    Raises:
        OSError: If the API server does not respond, or refuses for another reason than an existing
            Secret.
    """
    namespace = (ACCOUNT / "namespace").read_text().strip()
    token = (ACCOUNT / "token").read_text().strip()
    server = HTTPSConnection(
        os.environ["KUBERNETES_SERVICE_HOST"],
        int(os.environ["KUBERNETES_SERVICE_PORT"]),
        timeout=CALL_SECONDS,
        context=tls(ACCOUNT / "ca.crt"),
    )
    try:
        server.request(
            method,
            f"/api/v1/namespaces/{namespace}/secrets{path}",
            None if body is None else json.dumps(body),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        response = server.getresponse()
        content = json.loads(response.read())
    except HTTPException as error:
        raise ConnectionError(f"the API server broke off: {error!r}") from error
    finally:
        server.close()
    if response.status >= BAD and response.status != CONFLICT:
        raise ConnectionError(f"the API server answers {response.status}: {content.get('message')}")
    return response.status, content


if __name__ == "__main__":
    sys.exit(main())
