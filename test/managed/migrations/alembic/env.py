from alembic import context
from sqlalchemy import MetaData, Table, Column, Integer, create_engine

# The service's own model: "alembic check" compares it with the database.
model = MetaData()
Table("orders", model, Column("id", Integer))

with create_engine("postgresql+psycopg://").connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=model,
        include_schemas=True,
        # Without this, "alembic check" wants to drop our tables.
        include_name=lambda name, kind, parent: not (kind == "schema" and name == "idempotency"),
    )
    with context.begin_transaction():
        context.run_migrations()
