"""The published adapter of a finished run: its files, its card, and training_report.json with data and steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from torch.distributed.tensor import DTensor

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.manifest import TRAINING_REPORT
from ratchet.adapters.publish import publish_adapter
from ratchet.runs.progress import MOST_STEPS, thin_out
from ratchet.service import failpoint
from schemas.messages.base import Metadata
from schemas.messages.training import AdapterTrained
from schemas.records.adapter_card import AdapterCard
from services.trainer.algorithms.algorithm import PolicyTrainer, TrainerInputs
from services.trainer.algorithms.plan import Plan, TrainingTargets
from services.trainer.algorithms.policy import save_policy
from services.trainer.data.demonstrations import Doubt
from services.trainer.data.selection import Selection
from services.trainer.data.support import PolicyMatch
from services.trainer.run.choices import Choices
from services.trainer.run.held_out import HeldOutResult

SCHEMA = "training_report.v1"
MOST_DOUBTS = 100
AT_THE_END = (
    *("loss", "clip_fraction", "gap", "effective_share", "mean_weight"),
    *("divergence", "good_log_ratio", "entropy", "kl", "demonstration_loss"),
)


def report(
    choices: Choices,
    selection: Selection,
    match: PolicyMatch | None,
    trainer: PolicyTrainer,
    inputs: TrainerInputs,
    steps: Sequence[Mapping[str, float]],
    held_out: HeldOutResult | None = None,
    doubts: Sequence[Doubt] = (),
) -> dict[str, Any]:
    """`steps`: the figures of each; of very many, some. `spread`: no process held all of the base model.

    It says nothing of time or machine: the same run gives the same report.
    """
    request = choices.request
    return {
        "schema_version": SCHEMA,
        "run_id": request.request_id,
        "agent_id": request.agent_id,
        "algorithm": request.algorithm,
        "parent": choices.parent,
        "seed": request.seed,
        "hyperparameters": choices.hyperparameters.model_dump(mode="json") | {"learning_rate": inputs.learning_rate},
        "data": {
            "window": selection.window.model_dump(mode="json", exclude={"taught"}),
            "counts": selection.counts,
            "temperature": selection.temperature,
            "scorer": _scorer(selection),
            "scorer_noise": selection.noise,
            **({"mean_score": _mean_score(selection)} if selection.groups else {}),
        }
        | conversations(inputs, trainer)
        | programs(inputs),
        "parent_match": asdict(match) if match else {},
        "plan": {
            "steps": trainer.state.max_steps,
            "processes": inputs.processes,
            "spread": any(isinstance(weight, DTensor) for weight in inputs.policy.parameters()),
        }
        | _layout(trainer),
        **({"held_out": asdict(held_out)} if held_out else {}),
        **({"doubtful": [asdict(doubt) for doubt in doubts[:MOST_DOUBTS]]} if doubts else {}),
        "steps": [dict(step) for step in thin_out(steps, MOST_STEPS)],
    }


def metrics_of(report: Mapping[str, Any], seconds: float, time_left_told: Mapping[str, float]) -> dict[str, Any]:
    """The few figures that travel with the adapter: of the data, of the parent, of the last step, and of the time."""
    last = report["steps"][-1] if report["steps"] else {}
    held_out = dict(report.get("held_out", {}))
    prefix = "held_out_preference" if held_out.pop("figure", None) == "held_out_preference" else "held_out"
    return {
        "steps": report["plan"]["steps"],
        "mean_score": report["data"].get("mean_score"),
        "scorer_noise": report["data"]["scorer_noise"],
        "parent_gap": report["parent_match"].get("gap"),
        "parent_effective_share": report["parent_match"].get("effective_share"),
        "seconds": round(seconds, 3),
        **time_left_told,
        **{f"{prefix}_{name}": value for name, value in held_out.items()},
    } | {f"last_{name}": last[name] for name in AT_THE_END if name in last}


def _layout(trainer: PolicyTrainer) -> dict[str, float]:
    plan = plan_of(trainer)
    return {"micro_batches": len(plan.micro_batches), "fill": round(plan.fill, 4)} if plan else {}


def plan_of(trainer: PolicyTrainer) -> Plan | None:
    """Return the trainer's plan; None where it follows none."""
    plan = getattr(trainer, "plan", None)
    return plan if isinstance(plan, Plan) else None


def conversations(inputs: TrainerInputs, trainer: PolicyTrainer) -> dict[str, Any]:
    """Return how conversations are cut, and that what was sampled was trained on; empty where there are none.

    `sampled_tokens` are `trained_tokens` and those of rollouts that take no part or have no advantage.
    """
    if not any(sample.rollout is not None for sample in inputs.samples):
        return {}
    rollouts = inputs.rollouts
    tokens = [sum(inputs.samples[row].tokens for row in rows) for rows in rollouts]
    figures: dict[str, Any] = {
        "rollouts": len(rollouts),
        "segments": len(inputs.samples),
        "segments_per_rollout": round(len(inputs.samples) / len(rollouts), 4),
        "breaks": dict(sorted(Counter(one.broke for one in inputs.samples if one.broke is not None).items())),
        "sampled_tokens": sum(tokens),
    }
    targets = getattr(trainer, "targets", None)
    if isinstance(targets, TrainingTargets):
        trained = sum(tokens[number] for group in targets.used for number in group if targets.live[number])
        figures |= {"trained_tokens": trained, "without_advantage_tokens": figures["sampled_tokens"] - trained}
    return {"conversations": figures}


def programs(inputs: TrainerInputs) -> dict[str, Any]:
    """Return rollouts and mean score of each program, where groups have several.

    A program that is alone in its groups is not among them.
    """
    if all(sample.program is None for sample in inputs.samples):
        return {}
    scores: dict[str, list[float]] = {}
    for first in (inputs.samples[rows[0]] for rows in inputs.rollouts):
        scores.setdefault(first.program or "", []).append(first.score)
    return {
        "programs": {
            name: {"rollouts": len(given), "mean_score": sum(given) / len(given)}
            for name, given in sorted(scores.items())
        }
    }


def _mean_score(selection: Selection) -> float:
    scores = [score for group in selection.groups for score in group.scores]
    return sum(scores) / len(scores)


def _scorer(selection: Selection) -> dict[str, str | None] | None:
    scorer = selection.scorer
    return {"id": scorer.id, "revision": scorer.revision, "rubric_sha256": scorer.rubric_sha256} if scorer else None


@dataclass(frozen=True, slots=True)
class Finished:
    choices: Choices
    selection: Selection
    report: Mapping[str, Any]
    metrics: dict[str, Any]
    held_out_at: datetime | None
    at: datetime


def publish(finished: Finished, policy: Any, scratch: Path, adapters_dir: Path) -> AdapterTrained:
    """Returns when the new version is in place. Done again after a kill, it finds the version that is there.

    Raises AdapterError, RegistryError, DiskFull and JournalError.
    """
    request = finished.choices.request
    files = save_policy(policy, finished.choices.base, scratch)
    files[TRAINING_REPORT] = json.dumps(finished.report, indent=2).encode() + b"\n"
    folder = publish_adapter(files, _card(finished), adapters_dir, request.agent_id)
    failpoint.reach("adapter-published")
    return AdapterTrained(
        request_id=request.request_id,
        agent_id=request.agent_id,
        status="trained",
        metadata=Metadata(timestamp=finished.at, source="trainer"),
        adapter_version=folder.name,
        adapter_sha256=adapter_sha256(folder),
        parent_version=finished.choices.parent,
        counts=finished.selection.counts,
        metrics=finished.metrics,
    )


def _card(finished: Finished) -> AdapterCard:
    request = finished.choices.request
    return AdapterCard(
        run_id=request.request_id,
        parent=finished.choices.parent,
        base=finished.choices.base,
        algorithm=request.algorithm,
        data=finished.selection.window,
        hyperparameters=finished.report["hyperparameters"],
        metrics=finished.metrics,
        held_out_at=finished.held_out_at,
        research_agent=request.research_agent,
        created=finished.at,
    )
