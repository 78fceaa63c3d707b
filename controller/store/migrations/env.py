"""Run by Alembic, on the connection that :func:`controller.store.migrations.migrate` was given."""

from alembic import context

from controller.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter most of a table: Alembic copies it instead.
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
