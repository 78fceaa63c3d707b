"""Checks every response of an API against the API's own OpenAPI description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aiohttp import web
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from controller.api.error_responses import Handler

_HERE: Final = "urn:description"
Json = dict[str, Any]


class Described:
    """An OpenAPI description, and the responses that violate it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        # Imported late: the import builds parsers of all known formats, which takes a second.
        from jsonschema import Draft202012Validator

        self.document = document
        self.wrong: list[str] = []
        resource = Resource.from_contents(document, default_specification=DRAFT202012)
        registry: Registry[Any] = Registry().with_resource(_HERE, resource)
        self._validator = cache(
            lambda pointer: Draft202012Validator({"$ref": f"{_HERE}#{pointer}"}, registry=registry)
        )

    def problems(self, value: Any, *place: str) -> list[str]:
        """Return the violations by *value* of the schema at *place* in the document."""
        pointer = "".join(f"/{one.replace('~', '~0').replace('/', '~1')}" for one in place)
        found = self._validator(pointer).iter_errors(value)
        return [f"{error.json_path}: {error.message}"[:300] for error in found]

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record each response that the description does not cover."""
        response = await handler(request)
        resource = request.match_info.route.resource
        if resource is None or resource.canonical not in self.document["paths"]:
            return response
        self.wrong += [
            f"{request.method} {resource.canonical} {response.status}: {problem}"
            for problem in self._check(resource.canonical, request.method.lower(), response)
        ]
        return response

    def _check(self, path: str, method: str, response: web.StreamResponse) -> list[str]:
        method = "get" if method == "head" else method
        responses = self.document["paths"][path][method]["responses"]
        described = responses.get(str(response.status))
        if described is None:
            return ["is not described"]
        missing = [
            f"no {name}"
            for name, header in described.get("headers", {}).items()
            if header["required"] and name not in response.headers
        ]
        kind = response.content_type
        if kind not in described["content"]:
            return [*missing, f"{kind} is not described"]
        if kind != "application/json" or not isinstance(response, web.Response):
            return missing
        assert isinstance(response.body, bytes)
        place = (
            "paths",
            path,
            method,
            "responses",
            str(response.status),
            "content",
            kind,
            "schema",
        )
        body = json.loads(response.body)
        # Each error code needs an example. The schema alone also admits codes of later versions.
        codes = described["content"][kind].get("examples")
        if codes is not None and body.get("code") not in codes:
            missing.append(f"the code {body.get('code')} is not described")
        return [*missing, *self.problems(body, *place)]
