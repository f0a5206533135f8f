from pathlib import Path

from alembic import op

revision = "a"
down_revision = None


def upgrade():
    # By the driver's cursor: SQLAlchemy takes each :name of a text for a parameter, and the driver each %.
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_name("idempotency.sql").read_text())
