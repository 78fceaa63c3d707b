"""The tables, by the queries on them. Times are unix seconds; a change here needs a migration."""

from controller.store.tables.base import metadata as metadata
from controller.store.tables.between_jobs_tables import *  # noqa: F403
from controller.store.tables.instance_tables import *  # noqa: F403
from controller.store.tables.job_tables import *  # noqa: F403
from controller.store.tables.outbox_tables import *  # noqa: F403
from controller.store.tables.progress_tables import *  # noqa: F403
from controller.store.tables.session_tables import *  # noqa: F403
