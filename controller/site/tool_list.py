"""The deployment's tools: programs that can be attached to a running job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from controller.jobs.spec.field_types import (
    BasePath,
    Image,
    Name,
    Port,
    SiteName,
    ToolName,
    VariableName,
)
from controller.jobs.spec.model import MOST_TOOLS
from controller.jobs.spec.parameters import Strict, Text
from controller.jobs.spec.scheduling import Resources
from controller.site.yaml_file import read_declared

VolumeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]


class Tool(Strict):
    """A program with a web interface on ``port``, in the job's working directory.

    It is ready when the port accepts connections; with ``ready_path``, when that path responds
    with a status below 400.
    """

    title: Name | None = None
    image: Image
    pull_credential: SiteName | None = None
    command: Annotated[list[Text], Field(max_length=1000)] = Field(default_factory=list)
    environment: Annotated[dict[VariableName, Text], Field(max_length=100)] = Field(
        default_factory=dict
    )
    port: Port
    base_path: BasePath = "/"
    ready_path: BasePath | None = None
    service_workers: bool = False
    product: SiteName | None = None
    resources: Resources = Resources()


class ToolList(Strict):
    """All tools, and the most tools of one job.

    ``shared_volumes`` are volumes whose claims can be mounted on several nodes (``ReadWriteMany``,
    ``ReadOnlyMany``). A tool that mounts another volume runs on its rank's node.
    """

    tools: dict[ToolName, Tool] = Field(default_factory=dict, max_length=100)
    most_per_job: Annotated[int, Field(ge=1, le=MOST_TOOLS)] = 4
    shared_volumes: Annotated[list[VolumeName], Field(max_length=1000)] = Field(
        default_factory=list
    )

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.shared_volumes)) != len(self.shared_volumes):
            raise ValueError("shared_volumes names a volume twice")
        return self


def read_tools(raw: str) -> ToolList:
    """Return the tools in the file *raw*.

    Raises:
        ValueError: With every problem of the file.
    """
    return read_declared(Path(raw), ToolList)
