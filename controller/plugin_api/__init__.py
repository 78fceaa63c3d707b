"""The API of third-party plugins, which import nothing else of Fumarole.

A plugin subclasses :class:`JobPlugin`. Its ``api_version`` names the version of this package that
it was written for, and it is registered in the entry-point group ``fumarole.plugins``
(docs/plugins/write-your-own.md). A controller runs plugins of its own major version, up to its own
minor version. Within a major version names are only added.

- :class:`JobPlugin`, its :class:`PluginContext`, and arguments of hooks: :class:`Job`,
  :class:`JobBuilder`, :class:`JobFromServer`.
- Declarations of a plugin: its own :class:`PluginSettings` and :class:`JobFields`.
- Contents of a builder: the ``VolcanoJob`` with its tasks and containers, and companions.
- Errors of a plugin: :class:`JobRejected`, with a :class:`Problem` for each problem.
"""

from __future__ import annotations

from controller.jobs.pipeline.builder import Companion, JobBuilder, SharedObject, make_helper
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin, PluginContext
from controller.jobs.pipeline.plugin_checks import API_VERSION
from controller.jobs.pipeline.plugin_loading import EVERY_OTHER
from controller.jobs.pipeline.plugin_metrics import (
    PluginCounter,
    PluginGauge,
    PluginHistogram,
    PluginMetrics,
)
from controller.jobs.pipeline.plugin_models import CompanionKind, JobFields, PluginSettings
from controller.jobs.spec.model import EffectiveTask, Endpoint, Job, Owner
from controller.jobs.spec.problems import JobRejected, Problem, make_path
from controller.site.job_defaults import JobDefaults
from controller.volcano.manifest import (
    Container,
    Mount,
    PodTemplate,
    Port,
    Task,
    Variable,
    VolcanoJob,
    Volume,
)
from controller.volcano.names import JOB_CONTAINER, companion_name, labels_of
from controller.volcano.observed import ObservedPod
from controller.volcano.quantities import Quantity

__all__ = [
    "API_VERSION",
    "EVERY_OTHER",
    "JOB_CONTAINER",
    "Companion",
    "CompanionKind",
    "Container",
    "EffectiveTask",
    "Endpoint",
    "Job",
    "JobBuilder",
    "JobDefaults",
    "JobFields",
    "JobFromServer",
    "JobPlugin",
    "JobRejected",
    "Mount",
    "ObservedPod",
    "Owner",
    "PluginContext",
    "PluginCounter",
    "PluginGauge",
    "PluginHistogram",
    "PluginMetrics",
    "PluginSettings",
    "PodTemplate",
    "Port",
    "Problem",
    "Quantity",
    "SharedObject",
    "Task",
    "Variable",
    "VolcanoJob",
    "Volume",
    "companion_name",
    "labels_of",
    "make_helper",
    "make_path",
]
