"""The mutated modules, and the tests near each of them.

These modules decide: who may enter, which route a session has, what a job does next, who leads.
Near tests are those of the module, and of its users within one process. Tests that start whole
systems are left out: they would notice more, and take hours.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Target(NamedTuple):
    """A module, and the tests near it."""

    file: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        """The module's name for ``import``."""
        return self.file.removesuffix(".py").replace("/", ".")


_RELAY: Final = "tests/gateway/relay/"
_ACCESS: Final = ("tests/gateway/core/access", "tests/gateway/core/downstream")
_RECONCILE: Final = "tests/controller/jobs/reconcile/test_"
_LIFECYCLE: Final = (
    "tests/controller/jobs/reconcile/lifecycle",
    f"{_RECONCILE}ending.py",
    f"{_RECONCILE}observe.py",
    "tests/controller/jobs/history/test_policy_timers.py",
    "tests/controller/jobs/history/test_retries.py",
    "tests/controller/jobs/history/test_unreadable.py",
    "tests/controller/jobs/tools/test_runs.py",
)
_SESSIONS: Final = "tests/controller/sessions/test_"
_BUS: Final = "tests/gateway/bus/test_"
_HOLDER: Final = (f"{_BUS}holder.py", f"{_BUS}holder_tables.py")
_ROUTES: Final = (
    "tests/shared/routes/test_route.py",
    "tests/shared/routes/test_table.py",
    "tests/shared/routes/test_route_bounds.py",
    "tests/shared/routes/test_statuses.py",
)

TARGETS: Final = (
    Target("gateway/core/access/decision.py", _ACCESS),
    Target("gateway/core/access/access_right.py", _ACCESS),
    Target(
        "gateway/core/access/opening.py", (*_ACCESS, "tests/gateway/credentials/test_sign_outs.py")
    ),
    Target(
        "gateway/relay/http/admission.py",
        (
            f"{_RELAY}http/test_admission.py",
            f"{_RELAY}http/test_admission_notes.py",
            f"{_RELAY}http/test_downstream.py",
            f"{_RELAY}http/test_asserting.py",
            f"{_RELAY}http/test_end_notice.py",
            f"{_RELAY}http/test_page_connection.py",
            f"{_RELAY}http/test_refused_addresses.py",
            f"{_RELAY}bridge/test_contract.py",
            f"{_RELAY}test_overload.py",
        ),
    ),
    Target(
        "gateway/live.py",
        ("tests/gateway/test_live.py",),
    ),
    Target(
        "gateway/relay/ending/closer.py",
        (
            f"{_RELAY}ending/test_closer.py",
            f"{_RELAY}ending/test_deferred_aborts.py",
            f"{_RELAY}ending/test_stall_deadlines.py",
            f"{_RELAY}ending/test_silent_close.py",
            f"{_RELAY}ending/test_closing.py",
        ),
    ),
    Target("shared/routes/route.py", _ROUTES),
    Target("shared/routes/table.py", _ROUTES),
    Target("gateway/core/bus_state.py", ("tests/gateway/core/test_bus_state.py",)),
    Target("gateway/bus/head_policy.py", (f"{_BUS}head_policy.py", *_HOLDER)),
    Target("gateway/bus/holder.py", (*_HOLDER, f"{_BUS}repair_reads.py")),
    Target("gateway/bus/repairer.py", (f"{_BUS}repair_reads.py", f"{_BUS}loading.py")),
    Target(
        "controller/sessions/routes.py",
        (f"{_SESSIONS}routes.py",),
    ),
    Target(
        "controller/sessions/publisher.py",
        (
            f"{_SESSIONS}publisher.py",
            f"{_SESSIONS}publisher_and_redis.py",
            f"{_SESSIONS}publisher_and_store.py",
            f"{_SESSIONS}publisher_timing.py",
        ),
    ),
    Target("controller/sessions/interval.py", (f"{_SESSIONS}interval.py",)),
    *(
        Target(f"controller/jobs/reconcile/lifecycle/{module}.py", _LIFECYCLE)
        for module in (
            "next_step",
            "gone",
            "missed_policies",
            "sidecars",
            "failure",
            "removal",
            "completion",
        )
    ),
    Target(
        "controller/jobs/reconcile/ending.py",
        (
            f"{_RECONCILE}ending.py",
            f"{_RECONCILE}attempt_end_actions.py",
            f"{_RECONCILE}job_end_actions.py",
        ),
    ),
    Target(
        "controller/jobs/reconcile/adoption.py",
        (f"{_RECONCILE}adoption.py", f"{_RECONCILE}store_identity.py"),
    ),
    *(
        Target(
            f"controller/leader/{module}.py",
            (
                "tests/controller/leader/test_leader.py",
                "tests/controller/leader/test_leader_parts.py",
                "tests/controller/leader/test_standby.py",
            ),
        )
        for module in ("leader", "term")
    ),
    Target(
        "controller/leader/election.py",
        (
            "tests/controller/leader/test_election_store.py",
            "tests/controller/leader/test_election_rounds.py",
        ),
    ),
)
