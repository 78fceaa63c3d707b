"""Lets in whoever has a service token of the orchestrator, and nobody else."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from controller.api.error_responses import ApiError, Handler
from shared.errors import TokenRefused
from shared.jwks import KeySource
from shared.jws import read_unverified
from shared.tokens import verify_service_token

CALLER = web.RequestKey("caller", str)
"""The ``sub`` of the token that a request came with."""


def bearer_only(
    keys: KeySource, *, issuer: str, longest_seconds: float, clock: Callable[[], float]
) -> Middleware:
    """Return a middleware that verifies each request's bearer token (RFC 6750).

    A token is refused that is good for longer than *longest_seconds* altogether.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            token = _token(request)
            known = await keys.keys_for(read_unverified(token).kid)
            request[CALLER] = verify_service_token(
                token, keys=known, issuer=issuer, now=clock(), longest_seconds=longest_seconds
            )
        except TokenRefused as refused:
            message = f"The token does not verify: {refused}."
            raise ApiError(401, "unauthorized", message) from None
        return await handler(request)

    return middleware


def _token(request: web.Request) -> str:
    values = request.headers.getall("Authorization", [])
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise ApiError(401, "unauthorized", "A bearer token of the orchestrator is needed.")
    return token.strip()
