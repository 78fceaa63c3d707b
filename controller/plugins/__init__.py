"""What makes a VolcanoJob of a job, one plugin a file, in this order.

``task`` makes the pods that all others change.
"""

from __future__ import annotations

from typing import Final

from controller.jobs.pipeline.plugin import JobPlugin
from controller.plugins.accounting import AccountingPlugin
from controller.plugins.connect_to_job import ConnectToJobPlugin
from controller.plugins.expiry import ExpiryPlugin
from controller.plugins.fair_share import FairSharePlugin
from controller.plugins.file_mount import FileMountPlugin
from controller.plugins.ingress import IngressPlugin
from controller.plugins.kata_container import KataContainerPlugin
from controller.plugins.minikube import MinikubePlugin
from controller.plugins.miscellaneous import MiscellaneousPlugin
from controller.plugins.multi_node import MultiNodePlugin
from controller.plugins.network_limit import NetworkLimitPlugin
from controller.plugins.parameter import ParameterPlugin
from controller.plugins.proxy import ProxyPlugin
from controller.plugins.shared_memory import SharedMemoryPlugin
from controller.plugins.task import TaskPlugin

PLUGINS: Final[tuple[type[JobPlugin], ...]] = (
    # First: makes the tasks, their pods and containers.
    TaskPlugin,
    # Before whatever reads what the containers get: it takes the part of their machine from that.
    KataContainerPlugin,
    # After task: fills in what the containers run.
    ParameterPlugin,
    # Before multi_node: where a file is missing, nothing is waited for.
    FileMountPlugin,
    # After task, whose order the ranks follow.
    MultiNodePlugin,
    # After kata_container: reads the containers' memory.
    SharedMemoryPlugin,
    # After task: annotates its pods.
    NetworkLimitPlugin,
    # After task, which names the queue; before those whose companions name the namespace.
    FairSharePlugin,
    # Before accounting, in time: what ends now is entered to its end later, not period by period.
    ExpiryPlugin,
    AccountingPlugin,
    # After fair_share: its policy names the namespace.
    ConnectToJobPlugin,
    # Before proxy: on clean-up, links are free only when no route leads to the job any more.
    IngressPlugin,
    # After whatever mounts something: it makes the working directory if nobody else has.
    MiscellaneousPlugin,
    # Beside proxy, which it goes round.
    MinikubePlugin,
    # Last: it exposes the job, and on clean-up nothing may be left that leads to it.
    ProxyPlugin,
)
