"""Kinds and scores of jobs; indexes by their tenant, and of those of which the fleet has tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("kind", sa.String(16), nullable=False, server_default="tasks"))
    op.add_column("jobs", sa.Column("scored", sa.Integer, nullable=False, server_default="0"))
    for name in ("score_sum", "score_squares"):
        op.add_column("jobs", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    op.create_index("jobs_by_tenant", "jobs", ["tenant"])
    op.create_index("jobs_by_released", "jobs", ["released"])
