"""Verifies the orchestrator's service token on every request."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Middleware

from controller.api.error_responses import ApiError, Handler
from shared.errors import TokenRefused
from shared.jose.jwks import KeySource
from shared.jose.jws import read_unverified
from shared.tokens import verify_service_token

CALLER = web.RequestKey("caller", str)
"""The ``sub`` of the request's token."""


def bearer_only(
    keys: KeySource,
    *,
    issuer: str,
    longest_seconds: float,
    clock: Callable[[], float],
    public: Collection[str],
) -> Middleware:
    """Return a middleware that verifies each request's bearer token (RFC 6750).

    A token whose lifetime exceeds *longest_seconds* is refused. Routes whose path is in *public*
    need no token; a request that matches no route needs one.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in public:
            return await handler(request)
        try:
            token = _token(request)
            known = await keys.keys_for(read_unverified(token).kid)
            request[CALLER] = verify_service_token(
                token, keys=known, issuer=issuer, now=clock(), longest_seconds=longest_seconds
            )
        except TokenRefused as refused:
            message = f"The token does not verify: {refused}."
            raise ApiError("unauthorized", message) from None
        return await handler(request)

    return middleware


def _token(request: web.Request) -> str:
    values = request.headers.getall("Authorization", [])
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise ApiError("unauthorized")
    return token.strip()
