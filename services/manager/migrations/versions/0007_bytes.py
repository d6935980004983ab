"""Quotas of the bytes that are kept of a tenant's jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("quotas", sa.Column("bytes", sa.BigInteger))
    op.add_column("jobs", sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"))
    # LENGTH counts characters of text; SQLite knows OCTET_LENGTH from 3.43 on only.
    size = "LENGTH(CAST({} AS BLOB))" if op.get_bind().dialect.name == "sqlite" else "OCTET_LENGTH({})"
    kept = f"{size.format('body')} + COALESCE({size.format('result')}, 0)"
    lengths = f"SELECT SUM({kept}) FROM tasks WHERE tasks.job_id = jobs.job_id"
    op.execute(f"UPDATE jobs SET bytes = COALESCE(({lengths}), 0)")
