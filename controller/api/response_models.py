"""The models of responses. Responses and their OpenAPI description are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from controller.jobs.history.job_record import State
from controller.jobs.history.retries import PolicyView
from controller.resource_metrics.sources import Metric, Missing
from controller.store.instance import Mode
from controller.store.jobs.job_rows import Desired
from controller.store.jobs.stored_logs import Lost


class ResponseModel(BaseModel):
    """The base of response bodies. Times are unix seconds."""

    model_config = ConfigDict(frozen=True, from_attributes=True, populate_by_name=True)


def owner_view(user: str, project: str | None) -> dict[str, str]:
    """Return the owner of a job, a batch or a ledger entry."""
    return {"user": user} if project is None else {"user": user, "project": project}


class Exit(ResponseModel):
    """How a rank ended."""

    rank: int
    exit_code: int | None
    signal: int | None = None
    reason: str = ""
    node: str = ""


class Retry(ResponseModel):
    """How often the job may be retried, and by which policies. The first match applies."""

    max_retry: int = Field(description="The most retries.")
    retries_used: int = Field(description="The retries so far.")
    policies: list[PolicyView]
    evictions: int = Field(description="How often the cluster evicted the job; not a retry.")
    max_evictions: int
    explanation: str


class PluginFailure(ResponseModel):
    """A plugin's hook that failed for the job and has not succeeded since."""

    plugin: str
    hook: str
    attempt: int
    tries: int
    error: str
    at: float
    next_at: float | None = Field(description="The time of the next try; None: no more tries.")


class Details(ResponseModel):
    """Machine-readable details of a reason."""

    cause: str = Field(description="A machine-readable code, finer than the reason.")
    at: float | None = Field(default=None, description="When the cause was recorded.")
    rank: int | None = None
    task: str | None = None
    index: int | None = Field(default=None, description="The replica's index within its task.")
    pod: str | None = None
    node: str | None = None
    container: str | None = None
    image: str | None = None
    queue: str | None = None
    resources: list[str] | None = Field(
        default=None, description="The resources that are insufficient."
    )
    exit_code: int | None = None
    signal: int | None = None
    memory_limit: str | None = Field(default=None, description="As a Kubernetes quantity.")
    by: str | None = Field(default=None, description="Who ended the job, as the caller said.")
    log_tail: list[str] | None = Field(
        default=None, description="The program's last lines of output before it failed."
    )


def read_details(kept: Mapping[str, Any] | None) -> Details | None:
    """Return the stored details; None if there are none, or if a newer version wrote them."""
    try:
        return Details.model_validate(kept) if kept else None
    except ValidationError:
        return None  # written by a newer version


KeptDetails = Annotated[Details | None, BeforeValidator(read_details)]


class JobState(ResponseModel):
    """The state of a job."""

    state: State = Field(description="The state of the job.")
    reason: str | None = Field(description="A machine-readable code for the state.")
    message: str | None = Field(description="A human-readable message.")
    details: KeptDetails = Field(default=None, description="Details of the reason.")
    desired: Desired = Field(description="The state that was last requested; `state` follows.")
    attempt: int = Field(description="Counts from 1. A retry or a resume starts the next one.")
    submitted_at: float = Field(description="When the job was accepted, in unix seconds.")
    started_at: float | None = Field(description="When the job first ran.")
    finished_at: float | None = Field(description="When the job reached a final state.")
    time_allocation_seconds: float | None = Field(description="Including all extensions.")
    expires_at: float | None = Field(
        description="When the time allocation ends; None before the start or without one."
    )
    queue: str | None = Field(description="The Volcano queue, once the job is submitted to it.")
    product: str | None = Field(description="The job's product.")
    parked: str | None = Field(
        default=None, description="Why this version of the controller cannot process the job."
    )
    batch: str | None = Field(default=None, description="The job's batch.")


class Update(ResponseModel):
    """One change of a job."""

    id: int = Field(description="The update's number. Later updates have higher numbers.")
    job: str = Field(validation_alias="job_id", description="The job's id.")
    attempt: int = Field(description="The job's attempt.")
    at: float = Field(description="The time of the change, in unix seconds.")
    state: State = Field(description="The job's state from then on.")
    reason: str | None = Field(description="A machine-readable code for the state.")
    message: str | None = Field(description="A human-readable message.")
    exits: list[Exit] | None = Field(description="How each rank ended; None until the end.")
    details: KeptDetails = Field(default=None, description="Details of the reason.")


class UpdatesForgotten(ResponseModel):
    """Updates that were deleted before this receiver had them."""

    event: Literal["forgotten"]
    through: int = Field(description="The highest number among the deleted updates.")


TaskState = Literal["WAITING", "PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "GONE"]


Said = Annotated[str | None, BeforeValidator(lambda said: said or None)]
"""A text that is None if it is empty."""


class TaskView(ResponseModel):
    """The current state of one rank."""

    rank: int
    task: str
    index: int
    state: TaskState
    attempt: int
    pod: str | None
    node: Said
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    reason: Said
    message: Said


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _whole(value: float | None) -> float | None:
    return None if value is None else round(value)


Share = Annotated[float | None, BeforeValidator(_rounded)]
Bytes = Annotated[int | None, BeforeValidator(_whole)]


class MetricValues(ResponseModel):
    """Resource usage. A value is None if it is not known; `missing` says why."""

    cpu_cores: Share = None
    memory_bytes: Bytes = None
    network_receive_bytes_per_second: Bytes = None
    network_transmit_bytes_per_second: Bytes = None
    gpu_utilization: Share = Field(
        default=None, description="From 0 to 1; the mean over several GPUs."
    )
    gpu_memory_bytes: Bytes = None


class MetricSeries(ResponseModel):
    """The last samples, oldest first. Each list has one value for each time in `at`."""

    at: list[float]
    cpu_cores: list[Share]
    memory_bytes: list[Bytes]
    network_receive_bytes_per_second: list[Bytes]
    network_transmit_bytes_per_second: list[Bytes]
    gpu_utilization: list[Share]
    gpu_memory_bytes: list[Bytes]


class RankMetrics(ResponseModel):
    """The resource usage of one rank."""

    rank: int
    task: str
    index: int
    pod: str | None
    values: MetricValues
    missing: dict[Metric, Missing] = Field(description="Why a value is None, by metric.")
    series: MetricSeries


class ToolMetrics(ResponseModel):
    """The resource usage of a tool's last run."""

    tool: str
    rank: int = Field(description="The rank of the job that the tool is attached to.")
    pod: str | None
    values: MetricValues
    missing: dict[Metric, Missing]
    series: MetricSeries


class JobMetrics(ResponseModel):
    """The resource usage of a job: the sum, each rank, and each tool."""

    id: str
    attempt: int
    interval_seconds: float = Field(description="Seconds between samples; 0: no sampling.")
    sampled_at: float | None = Field(description="The time of the last sample.")
    values: MetricValues = Field(description="The sum over all ranks.")
    missing: dict[Metric, Missing]
    series: MetricSeries
    items: list[RankMetrics]
    tools: list[ToolMetrics] = Field(description="The job's tools, which the sums exclude.")


class LogView(ResponseModel):
    """The stored log of a pod. ``truncated`` names the reasons why it is incomplete."""

    bytes: int
    complete: bool
    truncated: list[Lost]


class RunView(ResponseModel):
    """The lifetime of one pod."""

    rank: int
    task: str
    index: int
    pod: str
    uid: str
    node: str
    phase: str
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    started_at: float | None
    ended_at: float | None
    log: LogView | None
    restart: int | None = Field(
        default=None, description="The restart within the attempt; 0 is the first start."
    )
    memory_limit: str | None = None


class AttemptView(ResponseModel):
    """One attempt: one VolcanoJob of the job."""

    attempt: int
    uid: str
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    outcome: str | None
    reason: str | None
    message: str | None
    details: KeptDetails = Field(default=None, description="Details of the reason.")
    retries: int = Field(description="How often Volcano restarted the VolcanoJob.")
    succeeded: int = Field(default=0, description="Ranks whose last pod succeeded.")
    failed: int = Field(default=0, description="Ranks whose last pod failed.")
    runs: list[RunView]


class History(ResponseModel):
    """All attempts, pods and updates of a job."""

    id: str
    attempts: list[AttemptView]
    updates: list[Update]


class Extension(ResponseModel):
    """The job's time allocation after an extension."""

    id: str
    added: bool = Field(description="False if the idempotency key was used before.")
    time_allocation_seconds: float
    expires_at: float | None


class UsageView(ResponseModel):
    """The cumulative usage of one replica in one attempt, in replica-seconds."""

    id: int = Field(description="The entry's number. Later entries have higher numbers.")
    job: str = Field(description="The job's id.")
    owner: dict[str, str] = Field(description="The job's owner.")
    attempt: int = Field(description="The job's attempt.")
    uid: str = Field(
        description="The VolcanoJob's uid. With rank and period it identifies an entry."
    )
    rank: int = Field(description="The rank; for a tool, the rank of the tool's own run: 0.")
    period: int = Field(description="Counts the entries of a rank and attempt without gaps.")
    until: float = Field(description="The end of the accounted time, in unix seconds.")
    seconds: float = Field(description="The rank's total usage in the attempt until then.")
    final: bool = Field(description="True if no later entry of this rank and attempt follows.")
    product: str | None = Field(description="The job's product at acceptance.")
    price: dict[str, Any] | None = Field(description="The product's price at acceptance.")
    resources: dict[str, Any] = Field(description="The resources of the replica.")
    at: float = Field(description="When the entry was written.")
    tool: str | None = Field(
        default=None, description="The tool that used them; None: the job itself."
    )


class UsagePage(ResponseModel):
    """A page of the ledger."""

    ledger: str = Field(description="The store's identity. Another identity is another ledger.")
    items: list[UsageView]
    next: int = Field(description="`after` of the next page.")
    acknowledged: int


class Acknowledged(ResponseModel):
    """The acknowledged position in the ledger, and the jobs that end for lack of funds."""

    through: int
    ended: list[str]


class UpdatePage(ResponseModel):
    """A page of updates."""

    items: list[Update]
    next: int


class Amounts(ResponseModel):
    """CPU cores, bytes of memory, and GPUs."""

    cpu: float
    memory: float
    gpu: float


class Counted(Amounts):
    """The resources that jobs request."""

    jobs: int


class Utilization(ResponseModel):
    """The cluster's capacity, and the resources of running and queued jobs."""

    capacity: Amounts | None = Field(description="None while the Kubernetes API is unavailable.")
    used: Counted
    queued: Counted


class MaintenanceView(ResponseModel):
    """Whether jobs are accepted and submitted, and how many there are."""

    mode: Mode
    message: str | None
    since: float
    waiting: int
    running: int


class ProductFeatures(ResponseModel):
    """The features that jobs of a product have in this deployment."""

    web: bool
    vnc: bool
    terminal: bool
    logs: bool
    peers: bool
    extend: bool
    suspend: bool
    utilization: bool
    batch: bool
    kinds: list[str] | None


class ProductView(ResponseModel):
    """A product of the catalogue."""

    name: str
    title: str | None
    default: bool
    cpu: str
    memory: str
    gpu: int
    price: dict[str, Any] | None
    features: ProductFeatures
