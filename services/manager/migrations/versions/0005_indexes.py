"""Indexes of jobs by their tenant, and of those of which the fleet has tasks."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_index("jobs_by_tenant", "jobs", ["tenant"])
    op.create_index("jobs_by_released", "jobs", ["released"])
