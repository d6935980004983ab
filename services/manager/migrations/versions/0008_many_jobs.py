"""Sums and indexes, so that a million jobs that have ended cost nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

KEY = {"tenant": 100, "day": 10, "agent_id": 63}
USED = ("tasks", "prompt_tokens", "sampled_tokens", "spent")


def upgrade() -> None:
    op.create_table(
        "daily_usage",
        *(sa.Column(name, sa.String(length), primary_key=True) for name, length in KEY.items()),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in USED),
    )
    key, sums = ", ".join(KEY), ", ".join(f"SUM({name})" for name in USED)
    op.execute(f"INSERT INTO daily_usage ({key}, {', '.join(USED)}) SELECT {key}, {sums} FROM usage GROUP BY {key}")
    op.drop_index("jobs_by_tenant", "jobs")
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "created_at", "job_id", "bytes"])
    op.create_index("jobs_by_owner", "jobs", ["owner", "created_at", "job_id"])
    op.create_index("jobs_by_change", "jobs", ["changed_at"])
    op.create_index("jobs_by_age", "jobs", ["created_at", "job_id"])
    held = sa.text("waiting + released + reserved > 0")
    op.create_index("jobs_held", "jobs", ["tenant"], sqlite_where=held, postgresql_where=held)
    op.create_index("tasks_by_end", "tasks", ["job_id", "ended_at", "place"])
