from alembic import op

revision = "b"
down_revision = "a"


def upgrade():
    op.execute("CREATE TABLE orders (id integer)")
    op.execute("SELECT idem_grant('managed_app')")
