"""Was a verdict right? The logs are replayed and must give, bit for bit, what the ledger says it was decided on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ratchet.adapters.draw_secrets import is_committed_to
from ratchet.experiments.records import ExperimentRecord
from ratchet.experiments.replay import draw_again, replay_experiment
from schemas.messages.base import explain
from services.cli.terminal import CommandError


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field that differs, as in `evidence.candidate.units`, and both values."""

    field: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """`difference` is None where both are identical. `drawn`: units that were drawn again, with the same result.

    `wrong_draw`: the first unit whose arm is not what the secret draws, or why no secret counts; None if all is right.
    """

    experiment_id: str
    decision: int
    verdict: str
    difference: Difference | None
    drawn: int
    wrong_draw: str | None

    @property
    def holds(self) -> bool:
        """Tell whether the verdict and every draw come out again."""
        return self.difference is None and self.wrong_draw is None

    def as_dict(self) -> dict[str, Any]:
        difference = self.difference and asdict(self.difference)
        return asdict(self) | {"identical": self.difference is None, "difference": difference}


def check(record: ExperimentRecord, logs_dir: Path) -> ReplayCheck:
    """Raises CommandError where there is no verdict to check; JournalError for logs that can't be read."""
    if record.ended is None:
        raise CommandError(
            f"{record.experiment_id} is still running, so there is no verdict to check yet: "
            f"ratchet experiment show {record.experiment_id}"
        )
    if record.ended.evidence.get("experiment_id") != record.experiment_id:
        raise CommandError(
            f"{record.experiment_id} was ended by {record.ended.who} in decision {record.ended.sequence} "
            f"({record.ended.reason}), not by a verdict of its own: there is nothing to compare"
        )
    recorded = record.ended.evidence
    try:
        again = replay_experiment(record.running, logs_dir).decision
    except ValidationError as error:
        raise CommandError(
            f"{record.experiment_id} was run by another version of ratchet ({explain('plan', error)}): replay it there"
        ) from None
    difference = first_difference(recorded, again.model_dump(mode="json"))
    verdict, (drawn, wrong_draw) = str(recorded.get("verdict")), _check_draws(record, logs_dir)
    return ReplayCheck(record.experiment_id, record.ended.sequence, verdict, difference, drawn, wrong_draw)


def _check_draws(record: ExperimentRecord, logs_dir: Path) -> tuple[int, str | None]:
    """Return how many units were drawn again rightly, and what is wrong with the draws."""
    draws = record.ended.draws if record.ended else None
    secret = (draws or {}).get(record.experiment_id, "")
    if not is_committed_to(record.running, secret):
        return 0, "the decision that ended it does not tell the secret that its plan names"
    drawn, wrong = draw_again(record.running, secret, logs_dir)
    return drawn, wrong and f"unit {wrong} was not given to the arm that the secret draws"


def first_difference(recorded: Any, replayed: Any, field: str = "") -> Difference | None:
    """Find it in the order of the replayed fields, the verdict first. Numbers are compared by every bit: no tolerance.

    A field that is not there is one that is null: an older ledger lacks those that came later.
    """
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for name in dict.fromkeys([*replayed, *recorded]):
            path = f"{field}.{name}" if field else name
            if difference := first_difference(recorded.get(name), replayed.get(name), path):
                return difference
        return None
    return None if repr(recorded) == repr(replayed) else Difference(field or "verdict", recorded, replayed)
