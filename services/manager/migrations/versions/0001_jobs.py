"""Jobs and their tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(100), primary_key=True),
        sa.Column("tenant", sa.String(100), nullable=False),
        sa.Column("owner", sa.String(100)),
        sa.Column("agent_id", sa.String(63), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("asked", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("samples", sa.Integer),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("created_at", "changed_at", "served_at", "deadline")),
        *(
            sa.Column(name, sa.Integer, nullable=False)
            for name in ("tasks", "waiting", "released", "ok", "failed", "expired", "cancelled", "places")
        ),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "agent_id"])
    op.create_table(
        "tasks",
        sa.Column("job_id", sa.String(100), primary_key=True),
        sa.Column("n", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("own_id", sa.String(200)),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("place", sa.Integer),
        sa.Column("reason", sa.Text),
        sa.Column("result", sa.Text),
    )
    op.create_index("tasks_by_state", "tasks", ["job_id", "state", "n"])
    op.create_index("tasks_by_place", "tasks", ["job_id", "place"])
