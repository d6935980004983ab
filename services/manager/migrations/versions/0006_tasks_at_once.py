"""Quotas of the tasks that the fleet has of a tenant at a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("quotas", sa.Column("tasks_at_once", sa.BigInteger))
