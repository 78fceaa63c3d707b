"""All tables. Times are unix seconds. A change here needs a migration."""

from controller.store.tables.instance_tables import *  # noqa: F403
from controller.store.tables.job_tables import *  # noqa: F403
