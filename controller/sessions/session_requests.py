"""Which sessions a request asks for, and why they are refused. No I/O.

A session leads to an endpoint of the job, to a tool that is attached to one of its ranks, to a port
that the request names, or to a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from controller.jobs.history.job_record import read_known
from controller.jobs.spec.endpoints import ports_at
from controller.jobs.spec.field_types import ENDPOINT_PATTERN, JobId, Port
from controller.jobs.spec.model import Job
from controller.jobs.spec.parameters import Strict
from controller.jobs.spec.problems import Problem
from controller.jobs.tools.plans import tool_at
from controller.site.product_list import Catalogue
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.tools import AttachedTool, ToolKey
from controller.store.sessions.session_rows import Session, make_sid
from shared.errors import FumaroleError
from shared.routes.route import Clipboard, Kind

CLIPBOARD_OF_WEB: Final = "the clipboard of a web session cannot be restricted"
_WAYS: Final[Mapping[Clipboard, frozenset[str]]] = MappingProxyType(
    {
        "both": frozenset({"in", "out"}),
        "in": frozenset({"in"}),
        "out": frozenset({"out"}),
        "none": frozenset(),
    }
)


class SessionsRefused(FumaroleError):
    """Sessions that cannot be opened as requested; none was opened."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{one.path}: {one.message}" for one in problems))
        self.problems = tuple(problems)


EndpointOrTool = Annotated[str, Field(pattern=f"^(tool:)?{ENDPOINT_PATTERN[1:]}")]
"""An endpoint of the job, or ``tool:<name>`` for a tool that is attached to the rank."""


class SessionItem(Strict):
    """An endpoint of a rank, by its name or by its kind; a web or VNC kind needs a port.

    The endpoint ``tool:<name>`` leads to a tool that is attached to the rank.
    """

    job: JobId
    rank: Annotated[int, Field(ge=0, le=2**31)] = 0
    endpoint: EndpointOrTool | None = None
    kind: Kind | None = None
    port: Port | None = None
    # It can only restrict what the endpoint allows.
    clipboard: Clipboard | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.endpoint is None) == (self.kind is None):
            raise ValueError("either an endpoint or a kind must be given")
        has_port = self.kind in ("web", "vnc")
        if has_port != (self.port is not None):
            raise ValueError("a port is required for the kinds web and vnc, and refused otherwise")
        if self.kind == "web" and self.clipboard not in (None, "both"):
            raise ValueError(CLIPBOARD_OF_WEB)
        return self


class _Invalid(Exception):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class SessionMaker:
    """Makes the rows of requested sessions."""

    clock: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    catalogue: Catalogue
    """The products' features."""
    rank_services: bool
    """Whether only declared ports can be reached."""

    def make(
        self,
        wanted: Sequence[SessionItem],
        records: Mapping[str, JobRecord],
        tools: Mapping[ToolKey, AttachedTool],
    ) -> list[Session]:
        """Return the requested sessions, in order.

        Raises:
            SessionsRefused: With every problem.
        """
        sessions: list[Session] = []
        problems: list[Problem] = []
        for index, one in enumerate(wanted):
            try:
                tool = tools.get(tool_of(one))
                sessions.append(self._session(one, records.get(one.job), tool))
            except _Invalid as wrong:
                problems.append(Problem(f"items[{index}].{wrong.field}", wrong.message))
        if problems:
            raise SessionsRefused(problems)
        return sessions

    def _session(
        self, wanted: SessionItem, record: JobRecord | None, tool: AttachedTool | None
    ) -> Session:
        if record is None:
            raise _Invalid("job", "the job does not exist")
        # Once its end is decided, the job's sessions end with it, and none may follow.
        if record.is_final or record.outcome is not None or record.desired == "ended":
            raise _Invalid("job", "the job is over")
        job = read_known(record)
        if not 0 <= wanted.rank < job.ranks:
            raise _Invalid("rank", f"the job has ranks 0 to {job.ranks - 1}")
        if tool_at(wanted.endpoint) is not None:
            return self._tool_session(wanted, tool)
        kind, port, base_path = _place(wanted, job)
        if self.rank_services and kind != "terminal":
            _check_declared(port, job, wanted.rank)
        if not self.catalogue.offers(job.product, kind):
            field = "kind" if wanted.endpoint is None else "endpoint"
            raise _Invalid(field, f"the job's product does not offer {kind}")
        return Session(
            sid=make_sid(self.random),
            job_id=wanted.job,
            rank=wanted.rank,
            kind=kind,
            endpoint=wanted.endpoint,
            port=port,
            base_path=base_path,
            clipboard=_clipboard(wanted, kind, job),
            service_workers=_allows_service_workers(wanted, job),
            created_at=self.clock(),
        )

    def _tool_session(self, wanted: SessionItem, tool: AttachedTool | None) -> Session:
        if tool is None:
            raise _Invalid("endpoint", "this tool is not attached to the rank")
        endpoint = tool.spec["interactive"][tool.name]
        if wanted.clipboard not in (None, "both"):
            raise _Invalid("clipboard", CLIPBOARD_OF_WEB)
        return Session(
            sid=make_sid(self.random),
            job_id=wanted.job,
            rank=wanted.rank,
            kind="web",
            endpoint=wanted.endpoint,
            port=endpoint["port"],
            base_path=endpoint.get("base_path", "/"),
            service_workers=endpoint.get("service_workers", False),
            created_at=self.clock(),
        )


def is_as_requested(session: Session, wanted: SessionItem) -> bool:
    """Return whether the session is one that this request would open."""
    place = (session.job_id, session.rank, session.endpoint)
    if place != (wanted.job, wanted.rank, wanted.endpoint):
        return False
    if wanted.kind is not None and (session.kind, session.port) != (wanted.kind, wanted.port):
        return False
    # The endpoint's own restriction may be narrower than the request.
    return _WAYS[session.clipboard] <= _WAYS[wanted.clipboard or "both"]


def tool_of(wanted: SessionItem) -> ToolKey:
    """Return the key of the tool that the session should lead to, if any."""
    return wanted.job, tool_at(wanted.endpoint) or "", wanted.rank


def _place(wanted: SessionItem, job: Job) -> tuple[Kind, int | None, str]:
    """Return kind, port and base path of the requested session."""
    if wanted.kind is not None:
        return wanted.kind, wanted.port, "/"
    endpoint = job.interactive.get(wanted.endpoint or "")
    if endpoint is None:
        raise _Invalid("endpoint", "the job does not declare this endpoint")
    if endpoint.task is not None and job.task_of(wanted.rank) != endpoint.task:
        raise _Invalid("rank", f"the rank is not in the endpoint's task {endpoint.task}")
    return endpoint.kind, endpoint.port, endpoint.base_path


def _clipboard(wanted: SessionItem, kind: Kind, job: Job) -> Clipboard:
    """Return the directions that both the endpoint and the request allow."""
    if kind == "web":
        if wanted.clipboard not in (None, "both"):
            raise _Invalid("clipboard", CLIPBOARD_OF_WEB)
        return "both"
    endpoint = job.interactive.get(wanted.endpoint or "")
    declared: Clipboard = endpoint.clipboard if endpoint is not None else "both"
    requested: Clipboard = wanted.clipboard or "both"
    ways = _WAYS[declared] & _WAYS[requested]
    return next(name for name, allowed in _WAYS.items() if allowed == ways)


def _allows_service_workers(wanted: SessionItem, job: Job) -> bool:
    endpoint = job.interactive.get(wanted.endpoint or "")
    return endpoint is not None and endpoint.service_workers


def _check_declared(port: int | None, job: Job, rank: int) -> None:
    if port not in ports_at(job, job.task_of(rank) or ""):
        raise _Invalid("port", "the job does not declare this port at the rank")
