"""The built-in plugins, one a file, in the order in which their hooks run.

``task`` creates the pods that all others change. Each plugin gives the reason for its place beside
its ``after`` and ``before``, by which third-party plugins find their places, too.
"""

from __future__ import annotations

from typing import Final

from controller.jobs.pipeline.plugin import JobPlugin
from controller.plugins.accounting import AccountingPlugin
from controller.plugins.connect_to_job import ConnectToJobPlugin
from controller.plugins.data_sets import DataSetsPlugin
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
    TaskPlugin,
    KataContainerPlugin,
    ParameterPlugin,
    FileMountPlugin,
    DataSetsPlugin,
    MultiNodePlugin,
    SharedMemoryPlugin,
    NetworkLimitPlugin,
    FairSharePlugin,
    ExpiryPlugin,
    AccountingPlugin,
    ConnectToJobPlugin,
    IngressPlugin,
    MiscellaneousPlugin,
    MinikubePlugin,
    ProxyPlugin,
)
