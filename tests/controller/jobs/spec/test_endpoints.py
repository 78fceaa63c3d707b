from __future__ import annotations

from controller.jobs.spec.endpoints import RankService, ports_at, rank_services_of
from controller.volcano.names import is_rank_service, rank_service_name
from tests.controller.samples import make_job


def test_each_rank_that_declares_an_endpoint_has_a_service_with_all_its_ports() -> None:
    job = make_job(
        tasks=[{"name": "master"}, {"name": "worker", "replicas": 2}],
        interactive={
            "board": {"kind": "web", "port": 6006, "task": "worker"},
            "desk": {"kind": "vnc", "port": 5900, "task": "worker"},
            "same": {"kind": "web", "port": 6006, "task": "worker"},
        },
    )
    assert rank_services_of(job) == (
        RankService(name="rank-j1-1", task="worker", index=0, ports=(5900, 6006)),
        RankService(name="rank-j1-2", task="worker", index=1, ports=(5900, 6006)),
    )
    assert ports_at(job, "master") == ()


def test_an_endpoint_without_task_is_at_every_rank() -> None:
    job = make_job(replicas=3, interactive={"lab": {"kind": "web", "port": 8888}})
    assert [one.name for one in rank_services_of(job)] == ["rank-j1-0", "rank-j1-1", "rank-j1-2"]
    assert rank_services_of(make_job(replicas=3)) == ()


def test_a_service_is_matched_only_to_its_own_job() -> None:
    assert is_rank_service("rank-a-1-2", "a-1")
    assert rank_service_name("a", 12) != rank_service_name("a-1", 2)
    assert not is_rank_service("peer-a", "a")
    # The longest possible identifier, and the largest rank.
    assert len(rank_service_name("x" * 40, 10**6)) <= 63
