"""`python -m services.manager.log_check`: what each tenant's tasks cost, computed anew from the fleet's log.

The lines of a task give its Result again, which costs what it took at the prices that were kept at its release. It only
reads, and needs RATCHET_MANAGER_DB and RATCHET_LOGS_DIR. It leaves out training runs, which have no line in that log,
and jobs that are forgotten. What retention has removed is counted apart.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import Connection, and_, func, select

from ratchet.logs.best_answer import result_of
from ratchet.logs.groups import group_by_task
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read
from ratchet.service.errors import RatchetError
from schemas.api.jobs import JobKind, TaskState
from schemas.messages.base import DecodeError
from schemas.records.interaction import Interaction
from services.manager.database import Database
from services.manager.ledger import SPENT, charge_of
from services.manager.settings import ManagerSettings
from services.manager.submission import task_id_of
from services.manager.tables import jobs, tasks, transfers

_PAID = (
    select(transfers.c.job_id, transfers.c.n, func.sum(transfers.c.amount).label("amount"))
    .where(transfers.c.target == SPENT)
    .group_by(transfers.c.job_id, transfers.c.n)
    .subquery()
)
_PRICED_TASKS = (
    select(
        *(jobs.c.tenant, jobs.c.job_id, jobs.c.spent),
        *(tasks.c.n, tasks.c.attempt, tasks.c.state, tasks.c.reserved, tasks.c.prices),
        func.coalesce(_PAID.c.amount, 0).label("paid"),
    )
    .join(tasks, tasks.c.job_id == jobs.c.job_id)
    .outerjoin(_PAID, and_(_PAID.c.job_id == tasks.c.job_id, _PAID.c.n == tasks.c.n))
    .where(jobs.c.kind != JobKind.TRAINING, tasks.c.prices.isnot(None))
)
"""One statement, so that balances and transfers are those of one moment."""


@dataclass(slots=True)
class TenantCheck:
    """Amounts are micro-units. `different`: tasks that were charged otherwise than the log says. `late`: those that
    the fleet answered when the manager had given them up, which are free. `removed`: those the log no longer has."""

    spent: int = 0
    in_log: int = 0
    of_removed: int = 0
    tasks: int = 0
    different: int = 0
    late: int = 0
    removed: int = 0

    @property
    def difference(self) -> int:
        return self.spent - self.in_log - self.of_removed


def check(connection: Connection, logs_dir: Path) -> dict[str, TenantCheck]:
    """Return what the live balances say and what the log says, by tenant. Raises JournalError."""
    found: dict[str, TenantCheck] = defaultdict(TenantCheck)
    left = {task_id_of(row.job_id, row.n, row.attempt): row for row in connection.execute(_PRICED_TASKS)}
    for tenant, _, spent in {(row.tenant, row.job_id, row.spent) for row in left.values()}:
        found[tenant].spent += spent
    for lines in group_by_task(_lines(logs_dir)):
        row = left.pop(lines[0].task_id, None)
        if row is None or row.state == TaskState.RELEASED:  # its Result is on its way
            continue
        of_tenant, result = found[row.tenant], result_of(lines)
        is_late = row.state != TaskState.OK and result.status == "ok"
        cost = 0 if is_late else charge_of(row, result).spent
        of_tenant.tasks += 1
        of_tenant.late += is_late
        of_tenant.in_log += cost
        of_tenant.different += cost != row.paid
    for row in left.values():
        if row.paid:
            found[row.tenant].removed += 1
            found[row.tenant].of_removed += row.paid
    return dict(found)


def _lines(logs_dir: Path) -> Iterator[Interaction]:
    for line in read(logs_dir, INTERACTIONS):
        try:
            yield Interaction.decode(line.data)
        except DecodeError as error:
            sys.stderr.write(f"the line at byte {line.position:,} is passed over: {error}\n")


def main() -> int:
    """Print a line for each tenant. Return 1 where the log says otherwise than the balances."""
    settings = ManagerSettings.read()
    with Database(settings.manager_db.get_secret_value()).beside() as connection:
        found = check(connection, settings.logs_dir)
    for tenant, one in sorted(found.items()):
        sys.stdout.write(json.dumps({"tenant": tenant, **asdict(one), "difference": one.difference}) + "\n")
    return int(any(one.difference or one.different for one in found.values()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RatchetError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
