"""Fields of a job for its scheduling: resources of a replica, its place, and actions on events."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from controller.jobs.spec.field_types import Bandwidth, Cpu, Memory
from controller.jobs.spec.parameters import Strict
from controller.volcano.policies import Action, Event, Rule


class Resources(Strict):
    """The resources of each replica: requests and limits alike."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    gpu: Annotated[int, Field(ge=0, le=1024)] | None = None


class Policy(Strict):
    """An action of Volcano on an ``event``, or on the ``exit_code`` of a program."""

    action: Action
    event: Event | None = None
    exit_code: Annotated[int, Field(ge=1, le=255)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=10**8)] | None = None

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        if (self.event is None) == (self.exit_code is None):
            raise ValueError("either an event or an exit_code")
        return self

    def rule(self) -> Rule:
        """Return it in the form that Volcano has."""
        return Rule(
            action=self.action,
            event=self.event,
            exit_code=self.exit_code,
            timeout_seconds=self.timeout_seconds,
        )


Policies = Annotated[list[Policy], Field(max_length=64)]


class NetworkTopology(Strict):
    """The distance of the pods in the network: ``hard`` waits for it, ``soft`` tries."""

    mode: Literal["hard", "soft"]
    tier: Annotated[int, Field(ge=1, le=1000)] | None = None


class Topology(Strict):
    """The placement of a pod's processors in its node, and of the pods in the network."""

    numa: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    network: NetworkTopology | None = None


class NetworkLimits(Strict):
    """Bits per second of each replica."""

    ingress: Bandwidth | None = None
    egress: Bandwidth | None = None
