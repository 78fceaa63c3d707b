"""Executed by Alembic on the connection of :func:`controller.store.migrations.migrate`."""

from alembic import context

from controller.store.migrations import SCHEMA_TABLE
from controller.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=SCHEMA_TABLE,
    # SQLite cannot alter most of a table: Alembic copies the table instead.
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
