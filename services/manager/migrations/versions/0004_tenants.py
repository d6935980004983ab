"""The tenant of an agent. A job's is part of its id."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("agents", sa.Column("tenant", sa.String(32), nullable=False, server_default="default"))
