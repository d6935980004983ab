"""Budgets: reservations and transfers, quotas of tenants, usage by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("budget", sa.BigInteger))
    for name in ("reserved", "spent"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("tasks", sa.Column("reserved", sa.BigInteger))
    op.add_column("tasks", sa.Column("prices", sa.Text))
    op.create_table(
        "transfers",
        sa.Column("transfer_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("tenant", sa.String(100), nullable=False),
        sa.Column("job_id", sa.String(100), nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("target", sa.String(16), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
    op.create_index("transfers_by_job", "transfers", ["job_id"])
    op.create_table(
        "quotas",
        sa.Column("tenant", sa.String(100), primary_key=True),
        sa.Column("weight", sa.Integer, nullable=False),
        sa.Column("open_tasks", sa.BigInteger),
        sa.Column("tokens_a_day", sa.BigInteger),
        sa.Column("budget", sa.BigInteger),
    )
    op.create_table(
        "usage",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("tenant", sa.String(100), primary_key=True),
        sa.Column("agent_id", sa.String(63), primary_key=True),
        sa.Column("job_id", sa.String(100), primary_key=True),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("tasks", "prompt_tokens", "sampled_tokens", "spent")
        ),
    )
