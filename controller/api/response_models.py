"""What the API shows: models from which both the answers and their description are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from controller.jobs.history.job_record import State
from controller.resource_metrics.sources import Metric, Missing


class ResponseModel(BaseModel):
    """Something that is shown. Times are unix seconds."""

    model_config = ConfigDict(frozen=True, from_attributes=True, populate_by_name=True)


class Exit(ResponseModel):
    """How a rank ended."""

    rank: int
    exit_code: int | None
    signal: int | None = None
    reason: str = ""
    node: str = ""


class PolicyView(ResponseModel):
    """What is done when something happens, and which words of the job say so."""

    task: str | None = Field(description="None where it holds for every task.")
    event: str | None
    exit_code: int | None
    action: str
    timeout_seconds: int | None
    explanation: str


class Retry(ResponseModel):
    """How often the job is started again, and what decides it; the first policy that fits does."""

    max_retry: int = Field(description="How often it is started again, at most.")
    retries_used: int = Field(description="How often it was started again so far.")
    policies: list[PolicyView]
    evictions: int = Field(description="How often the cluster took it away; not a retry.")
    max_evictions: int
    explanation: str


class PluginFailure(ResponseModel):
    """A plugin's hook that has failed for the job, and not run to its end since."""

    plugin: str
    hook: str
    attempt: int
    tries: int
    error: str
    at: float
    next_at: float | None = Field(description="When it is tried again; None: it is given up.")


class Details(ResponseModel):
    """What is known of a reason, for programs."""

    cause: str = Field(description="A word that is finer than the reason.")
    at: float | None = Field(default=None, description="When it was told.")
    rank: int | None = None
    task: str | None = None
    index: int | None = Field(default=None, description="Of the replica within its task.")
    pod: str | None = None
    node: str | None = None
    container: str | None = None
    image: str | None = None
    queue: str | None = None
    resources: list[str] | None = Field(default=None, description="Those that are lacking.")
    exit_code: int | None = None
    signal: int | None = None
    memory_limit: str | None = Field(default=None, description="As Kubernetes writes it.")
    by: str | None = Field(default=None, description="Who had it ended, where the caller said so.")
    log_tail: list[str] | None = Field(
        default=None, description="The last lines that the program wrote before it failed."
    )


def read_details(kept: Mapping[str, Any] | None) -> Details | None:
    """Return the details that are kept; None where nothing, or nothing readable, is known."""
    try:
        return Details.model_validate(kept) if kept else None
    except ValidationError:
        return None  # of a newer version


KeptDetails = Annotated[Details | None, BeforeValidator(read_details)]


class JobState(ResponseModel):
    """How a job is."""

    state: State = Field(description="How it is.")
    reason: str | None = Field(description="A word for programs.")
    message: str | None = Field(description="A text for people.")
    details: KeptDetails = Field(default=None, description="What is known of the reason.")
    desired: Literal["run", "suspended", "ended"] = Field(
        description="What was asked for last; `state` follows."
    )
    attempt: int = Field(description="Counts from 1; a retry or a resume begins the next one.")
    submitted_at: float = Field(description="When it was accepted, in unix seconds.")
    started_at: float | None = Field(description="When it first ran.")
    finished_at: float | None = Field(description="When it was over.")
    time_allocation_seconds: float | None = Field(description="With what was added to it.")
    expires_at: float | None = Field(
        description="When its time is over; None before its start, and without an allocation."
    )
    queue: str | None = Field(description="Volcano's queue, once it is submitted.")
    product: str | None = Field(description="The product that it has.")
    parked: str | None = Field(
        default=None, description="Why the controller's version cannot go on with it."
    )
    batch: str | None = Field(default=None, description="The batch that it belongs to.")


class Update(ResponseModel):
    """One thing that became of a job."""

    id: int = Field(description="Its number: later ones are higher.")
    job: str = Field(validation_alias="job_id", description="Which job.")
    attempt: int = Field(description="Of which attempt.")
    at: float = Field(description="When, in unix seconds.")
    state: State = Field(description="How the job is from then on.")
    reason: str | None = Field(description="A word for programs.")
    message: str | None = Field(description="A text for people.")
    exits: list[Exit] | None = Field(description="How its ranks ended, once it is over.")
    details: KeptDetails = Field(default=None, description="What is known of the reason.")


class UpdatesForgotten(ResponseModel):
    """Updates that a receiver of webhooks has missed: they are not kept any more."""

    event: Literal["forgotten"]
    through: int = Field(description="Up to which number they are forgotten.")


class TaskView(ResponseModel):
    """One rank as it is now."""

    rank: int
    task: str
    index: int
    state: Literal["WAITING", "PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "GONE"]
    attempt: int
    pod: str | None
    node: str | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    reason: str | None
    message: str | None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _whole(value: float | None) -> float | None:
    return None if value is None else round(value)


Share = Annotated[float | None, BeforeValidator(_rounded)]
Bytes = Annotated[int | None, BeforeValidator(_whole)]


class MetricValues(ResponseModel):
    """What is used; None where that is not known, and `missing` says why."""

    cpu_cores: Share = None
    memory_bytes: Bytes = None
    network_receive_bytes_per_second: Bytes = None
    network_transmit_bytes_per_second: Bytes = None
    gpu_utilization: Share = Field(default=None, description="From 0 to 1; the mean of several.")
    gpu_memory_bytes: Bytes = None


class MetricSeries(ResponseModel):
    """The last samples, the oldest first: each list has one value for each time of `at`."""

    at: list[float]
    cpu_cores: list[Share]
    memory_bytes: list[Bytes]
    network_receive_bytes_per_second: list[Bytes]
    network_transmit_bytes_per_second: list[Bytes]
    gpu_utilization: list[Share]
    gpu_memory_bytes: list[Bytes]


class RankMetrics(ResponseModel):
    """The use that one rank makes of its node."""

    rank: int
    task: str
    index: int
    pod: str | None
    values: MetricValues
    missing: dict[Metric, Missing] = Field(description="Why a value is None.")
    series: MetricSeries


class ToolMetrics(ResponseModel):
    """The use that the last run of a tool makes of its node."""

    tool: str
    rank: int = Field(description="The rank of the job beside which it runs.")
    pod: str | None
    values: MetricValues
    missing: dict[Metric, Missing]
    series: MetricSeries


class JobMetrics(ResponseModel):
    """The use that a job's ranks make of their nodes, together and each."""

    id: str
    attempt: int
    interval_seconds: float = Field(description="From sample to sample; 0: none is taken.")
    sampled_at: float | None = Field(description="When the last one was taken.")
    values: MetricValues = Field(description="The sum of all ranks.")
    missing: dict[Metric, Missing]
    series: MetricSeries
    items: list[RankMetrics]
    tools: list[ToolMetrics] = Field(description="Its tools: not in the sums.")


class LogView(ResponseModel):
    """What is stored of a pod's log; ``truncated`` says why something of it is not."""

    bytes: int
    complete: bool
    truncated: list[Literal["size", "unreadable", "store_away", "controller_away"]]


class RunView(ResponseModel):
    """One pod's life."""

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
        default=None, description="Which start of the attempt made it: 0 is the first one."
    )
    memory_limit: str | None = None


class AttemptView(ResponseModel):
    """One VolcanoJob that was made for the job."""

    attempt: int
    uid: str
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    outcome: str | None
    reason: str | None
    message: str | None
    details: KeptDetails = Field(default=None, description="What is known of the reason.")
    retries: int = Field(description="How often Volcano started it over.")
    succeeded: int = Field(default=0, description="Ranks whose last pod succeeded.")
    failed: int = Field(default=0, description="Ranks whose last pod failed.")
    runs: list[RunView]


class History(ResponseModel):
    """Everything that ever was."""

    id: str
    attempts: list[AttemptView]
    updates: list[Update]


class Extension(ResponseModel):
    """How much time the job has."""

    id: str
    added: bool = Field(description="False for a call that was made before.")
    time_allocation_seconds: float
    expires_at: float | None


class UsageView(ResponseModel):
    """What one replica has used in one attempt until a moment: absolute, in replica-seconds."""

    id: int = Field(description="Its number: later ones are higher.")
    job: str = Field(description="Which job.")
    owner: dict[str, str] = Field(description="Whose job it is.")
    attempt: int = Field(description="Of which attempt.")
    uid: str = Field(description="The VolcanoJob's. With rank and period it names the entry.")
    rank: int = Field(description="Of a tool, its own: 0.")
    period: int = Field(description="Counts the entries of an attempt's rank, without a gap.")
    until: float = Field(description="Up to when, in unix seconds.")
    seconds: float = Field(description="All that the rank has used in the attempt until then.")
    final: bool = Field(description="No further entry of this rank and attempt comes.")
    product: str | None = Field(description="The job's, at acceptance.")
    price: dict[str, Any] | None = Field(description="That of the product at acceptance.")
    resources: dict[str, Any] = Field(description="What the replica had.")
    at: float = Field(description="When it was entered.")
    tool: str | None = Field(
        default=None, description="Which tool of the job used it; None: the job itself."
    )


class UsagePage(ResponseModel):
    """A page of the ledger."""

    ledger: str = Field(description="The store's identity: another one is another ledger.")
    items: list[UsageView]
    next: int = Field(description="To be given as `after` for what follows.")
    acknowledged: int


class Acknowledged(ResponseModel):
    """Up to where the ledger was taken, and the jobs that end for want of funds."""

    through: int
    ended: list[str]


class UpdatePage(ResponseModel):
    """A page of updates."""

    items: list[Update]
    next: int


class Amounts(ResponseModel):
    """Processors, bytes and devices."""

    cpu: float
    memory: float
    gpu: float


class Counted(Amounts):
    """What jobs ask for."""

    jobs: int


class Utilization(ResponseModel):
    """What there is, what runs, and what waits."""

    capacity: Amounts | None = Field(description="None while the cluster does not answer.")
    used: Counted
    queued: Counted


class MaintenanceView(ResponseModel):
    """Whether jobs are taken and submitted, and how many there are."""

    mode: Literal["running", "paused", "draining"]
    message: str | None
    since: float
    waiting: int
    running: int


class ProductFeatures(ResponseModel):
    """What may be done with jobs of a product, here."""

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
    """What may be asked for."""

    name: str
    title: str | None
    default: bool
    cpu: str
    memory: str
    gpu: int
    price: dict[str, Any] | None
    features: ProductFeatures
