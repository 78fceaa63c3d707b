"""``/v1/kinds``: the kinds of jobs, and the parameters of each."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.response_models import ResponseModel
from controller.jobs.spec.field_types import FrameworkName
from controller.site.kinds import Kind, KindParameter


class KindView(ResponseModel):
    """A kind of jobs."""

    name: str
    title: str | None
    framework: FrameworkName | None = Field(description="The default framework.")
    frameworks: list[FrameworkName] | None = Field(description="The allowed frameworks; None: any.")
    parameters: dict[str, KindParameter]
    closed: bool = Field(description="Whether other parameters are refused.")
    artefacts: bool = Field(description="Whether jobs must have an output.")


@operation("GET", "/v1/kinds", "listKinds", "List the kinds of jobs")
async def show(api: ApiParts, _request: web.Request) -> list[KindView]:
    """Return each kind, ordered by name."""
    return [_view(name, kind) for name, kind in sorted(api.defaults.kinds.kinds.items())]


def _view(name: str, kind: Kind) -> KindView:
    return KindView(name=name, **{field: getattr(kind, field) for field in Kind.model_fields})
