"""Fixtures of the tests of pods: a controller over a cluster, and the files of its users."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.cluster.mount_points import MountPointCleaner
from controller.kube.client import Kube
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.jobs.parts import make_parts, running_informer
from tests.controller.jobs.reconcile.pods.world import FAILED, NODES, VOLUMES, World, make_claim
from tests.controller.new_stores import leading_store
from tests.controller.samples import make_context, make_defaults, make_job, make_pipeline


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with (
        leading_store(tmp_path_factory.mktemp("shapes")) as (store, term),
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        running_informer(kube, "test") as informer,
    ):
        settings = {"FUMAROLE_CONTROLLER_VOLUMES": VOLUMES}
        pipeline = make_pipeline(make_context(defaults=make_defaults(**settings)))
        parts = make_parts(
            kube=kube, store=store, informer=informer, pipeline=pipeline, term=term, instance="test"
        )
        # The first job creates the namespace; the claims belong to the deployment.
        await parts.submit(make_job(id="first", image="busybox", invocation={"command": ["true"]}))
        await parts.drive_to_the_end("first")
        home = await make_claim(cluster, admin, "home-ada")
        sets = await make_claim(cluster, admin, "sets")
        (node,) = await admin.list(NODES)
        network = node["metadata"]["labels"].get("embedded-cluster/pod-network", "none")
        if network == "none":
            pytest.skip("pods have no mounts or network of their own here")

        def make_cleaner(clock: Clock) -> MountPointCleaner:
            cluster = JobObjects(kube, instance="test")
            return MountPointCleaner(
                store.fenced(term), kube=kube, cluster=cluster, clock=clock, failed=FAILED.append
            )

        yield World(parts, pipeline, make_cleaner, kube, home, sets)
