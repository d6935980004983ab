"""Agents that are registered at run time, what runners report of them, and jobs that wait for approval."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("owner", sa.String(100)),
        sa.Column("model", sa.String(63), nullable=False),
        sa.Column("rules", sa.Text, nullable=False),
        sa.Column("budget", sa.BigInteger),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("retired", sa.Boolean, nullable=False),
    )
    op.create_table(
        "agent_reports",
        sa.Column("runner", sa.String(200), primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("reported_at", sa.Double, nullable=False),
    )
    op.add_column("jobs", sa.Column("awaits_approval", sa.Boolean, nullable=False, server_default=sa.false()))
