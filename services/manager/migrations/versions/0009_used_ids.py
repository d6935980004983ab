"""The ids that forgotten jobs had, and room for owners with the name of a tenant before theirs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "used_ids",
        sa.Column("job_id", sa.String(100), primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":  # SQLite holds no text to its length
        for table in ("jobs", "agents"):
            op.alter_column(table, "owner", type_=sa.String(200))
