"""What jobs cost is computed anew from the fleet's log, and a difference is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from services.manager import log_check
from services.manager.log_check import TenantCheck
from tests.services.manager.managed import Managed, managed
from tests.services.trainer.making_logs import group, write_log

PRICES = 'currency = "EUR"\n[agents.small]\nprompt = 1\nsampled = 10\nsamples = 2\nmax_tokens = 5\n'
USED = {"prompt_tokens": 3, "sampled_tokens": 4}
"""Of two samples of two tokens, to one prompt of three: what making_logs writes. It costs 43 micro-units."""


def answer(here: Managed, logs: Path, task_id: str, **fields: Any) -> None:
    """Log two samples of a task, and send its Result."""
    here.fleet.answer(task_id, usage=USED, **fields)
    write_log(logs, group(task_id, [1.0, 0.0], needs_usage=True))


async def check(folder: Path, logs: Path) -> dict[str, TenantCheck]:
    with log_check.Database(f"sqlite:///{folder}/jobs.sqlite").beside() as connection:
        return log_check.check(connection, logs)


async def test_each_task_costs_by_the_log_what_it_was_settled_at(tmp_path: Path) -> None:
    logs, prices = tmp_path / "logs", tmp_path / "prices.toml"
    prices.write_text(PRICES)
    async with managed(tmp_path, prices=prices) as here:
        # given a task that is answered, one that failed and was run again, and one whose log line is gone
        await here.submit(3, job_id="j")
        await here.released(3)
        answer(here, logs, "j/0")
        here.fleet.answer("j/1", status="failed", reason="the engine is away", response=None)
        write_log(logs, group("j/1", [None], needs_usage=True, status="failed", reason="the engine is away"))
        here.fleet.answer("j/2", usage=USED)
        await here.wait_for("j", state="done")
        await here.post("/v1/jobs/j/rerun")
        await here.released(1)

    # and prices that change meanwhile
    prices.write_text(PRICES.replace("sampled = 10", "sampled = 100"))
    async with managed(tmp_path, prices=prices) as here:
        answer(here, logs, "j/1/2")
        await here.wait_for("j", state="done")
        await here.submit(2, job_id="k")
        await here.released(2)
        answer(here, logs, "k/0")
        await here.wait_for("k", ok=1)

        # when the log is read, while one task is out
        write_log(logs, group("somebody-else's", [1.0, 0.0]))
        found = await check(tmp_path, logs)

    # then it says what the balances say
    expected = TenantCheck(spent=3 * 43 + 403, in_log=2 * 43 + 403, of_removed=43, tasks=3, removed=1)
    assert found == {"default": expected}
    assert expected.difference == 0


@pytest.mark.parametrize(
    ("change", "difference", "different"),
    [
        ("UPDATE jobs SET spent = spent + 1", 1, 0),
        ("UPDATE transfers SET amount = amount - 1 WHERE target = 'spent' AND n = 0", 0, 1),
        ("DELETE FROM transfers WHERE target = 'spent' AND n = 1", 0, 1),
        ("UPDATE tasks SET state = 'expired' WHERE n = 1", 43, 1),
    ],
)
async def test_a_difference_of_one_micro_unit_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: str,
    difference: int,
    different: int,
) -> None:
    logs, prices = tmp_path / "logs", tmp_path / "prices.toml"
    prices.write_text(PRICES)
    async with managed(tmp_path, prices=prices) as here:
        await here.submit(2, job_id="j")
        await here.released(2)
        answer(here, logs, "j/0")
        answer(here, logs, "j/1")
        await here.wait_for("j", state="done")
    monkeypatch.setenv("RATCHET_MANAGER_DB", f"sqlite:///{tmp_path}/jobs.sqlite")
    monkeypatch.setenv("RATCHET_LOGS_DIR", str(logs))

    assert log_check.main() == 0
    assert json.loads(capsys.readouterr().out)["difference"] == 0
    with create_engine(f"sqlite:///{tmp_path}/jobs.sqlite").begin() as connection:
        connection.execute(text(change))
    assert log_check.main() == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["tenant"], told["difference"], told["different"]) == ("default", difference, different)
