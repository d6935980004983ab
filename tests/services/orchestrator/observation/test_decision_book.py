"""The ledger of decisions as it is shown: a line that an older version let grow is shown cut, and kept whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ratchet.adapters.decisions import DecisionLedger, Mark
from ratchet.service.errors import LONGEST_REASON
from schemas.records.decision import DecisionDraft, Freeze, Unfreeze
from services.orchestrator.observation.watcher import LARGEST_LINE, DecisionBook

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
LONG, HUGE = "unknown tensor " * 1_000, "unknown tensor " * 200_000


def written(folder: Path) -> DecisionLedger:
    folder.mkdir(exist_ok=True)
    ledger, end = DecisionLedger(folder), Mark()
    for move, reason in ((Freeze(), "too large a rank"), (Unfreeze(), LONG), (Freeze(), HUGE)):
        draft = DecisionDraft(
            agent_id="small", move=move, who="orchestrator", at=NOON, reason=reason, evidence={"seen": reason}
        )
        end = ledger.append(end, draft).end
    return ledger


def test_a_reason_of_any_length_is_shown_with_a_bound_and_says_where_the_rest_is(tmp_path: Path) -> None:
    book = DecisionBook(written(tmp_path))

    huge, long, short = book.page(limit=10, before=None, agent_id=None, version=None)

    assert (short.reason, short.evidence) == ("too large a rank", {"seen": "too large a rank"})
    note = f"… ({len(LONG) - LONGEST_REASON:,} more characters in line 2 of decisions.jsonl)"
    assert long.reason == LONG[:LONGEST_REASON] + note
    assert long.evidence == {"seen": LONG}
    assert len(huge.reason) < LONGEST_REASON + 100 and huge.reason.endswith("in line 3 of decisions.jsonl)")
    assert huge.evidence == {}
    assert len(huge.encode()) < LARGEST_LINE / 100
    assert [one.reason for one in DecisionBook(written(tmp_path / "other")).read_on()] == [
        one.reason for one in (short, long, huge)
    ]


def test_a_line_that_is_too_large_is_read_once_and_what_was_written_stays(tmp_path: Path) -> None:
    ledger = written(tmp_path)
    book = DecisionBook(ledger)
    before = book.page(limit=1, before=None, agent_id=None, version=None)
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[: -len(HUGE)] + b"x" * len(HUGE))

    assert book.page(limit=1, before=None, agent_id=None, version=None) == before

    ledger.path.write_bytes(whole)
    assert [line.decision.reason for line in ledger.read()] == ["too large a rank", LONG, HUGE]
