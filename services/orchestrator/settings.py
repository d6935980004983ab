"""The orchestrator's settings, on top of the fleet's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import NoDecode

from ratchet.logs.groups import Baseline
from ratchet.service.settings import FleetSettings, names, none_if_empty, pairs
from schemas.messages.work import Sampling
from schemas.records.cascade import CascadePlanRecord
from schemas.records.evidence import AuditRule, ExperimentPlan, Limits, ServedRule

if TYPE_CHECKING:  # every image has this file, to check settings by, and the orchestrator's alone has those
    from services.orchestrator.metrics import Objectives
    from services.orchestrator.promotion.experiment_transitions import ExperimentPolicy
    from services.orchestrator.tasks.adaptive_samples import SamplesPolicy
    from services.orchestrator.training.trigger import TrainingPolicy


class OrchestratorSettings(FleetSettings):
    """The shared settings, and its own."""

    orchestrator_http_port: int = Field(8700, ge=1, le=65535, description="Port of the orchestrator's HTTP server.")
    orchestrator_prefetch: int = Field(512, ge=1, le=10_000, description="Messages in hand at once, for each queue.")
    lease_s: float = Field(
        10.0,
        ge=1,
        description="Seconds without a sign of life from the orchestrator that leads, after which a standby takes its "
        "place; the same for all of a fleet.",
    )
    lease: str = Field(
        "",
        description="Name of a Lease of Kubernetes that says which orchestrator leads, in the pod's namespace; empty: "
        "the file in the logs folder alone says it.",
    )
    samples: int = Field(8, ge=1, le=64, description="Group size of tasks that do not say: answers sampled for each.")
    adaptive_samples: int = Field(
        0,
        ge=0,
        le=64,
        description="Fewest answers sampled for a task that does not say, once so few are proved as good as the "
        "whole group; 4 at least where trainings are asked for. 0: never fewer.",
    )
    adaptive_margin: float = Field(
        0.02, ge=0, le=0.5, description="Loss of score against the whole group that does not count there."
    )
    temperature: float = Field(1.0, ge=0, le=5, description="Sampling temperature; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 filters nothing.")
    top_k: int = Field(0, ge=0, description="Top-k sampling; 0 filters nothing.")
    max_tokens: int = Field(
        256,
        ge=1,
        description="Tokens an answer may have; where it is not set, `ratchet up` with the small model that is made "
        "here sets 16.",
    )
    task_deadline_s: float = Field(3600.0, gt=0, description="Seconds a task may take, where it names no deadline.")
    objective_availability: float = Field(
        0.99,
        ge=0.95,
        lt=1,
        description="Share of the users' tasks that is to be answered. Alerts fire where the rest is used up too fast.",
    )
    objective_latency: float = Field(
        0.95, ge=0.95, lt=1, description="Share of the answers that is to come within RATCHET_OBJECTIVE_LATENCY_S."
    )
    objective_latency_s: float = Field(
        300.0, ge=0, description="Seconds from the task to its answer that are fast enough; 0: no such objective."
    )
    max_logged_bytes: int = Field(
        32 * 1024 * 1024,
        ge=1024,
        description="Largest a task may become in the log, in bytes: its size times its samples; a larger one is "
        "refused.",
    )
    segment_bytes: int = Field(
        256 * 1024 * 1024, ge=4096, description="Size at which a log is sealed, compressed and begun anew, in bytes."
    )

    pooled_logs: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(names)] = Field(
        (),
        max_length=63,
        description="Logs folders, by comma, of the fleets that follow this one's decisions: their tasks count in its "
        "experiments. All share RATCHET_ADAPTERS_DIR.",
    )
    pool: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        None, description="Logs folder of the fleet that decides for this one; empty: this one decides."
    )
    fleet_number: int = Field(
        0,
        ge=0,
        lt=64,
        description="Place of this fleet's logs folder in RATCHET_POOLED_LOGS of the fleet that decides.",
    )

    chat_models: str = Field(
        "", description="Names that chat clients may call agents by: gpt-4o=small,*=small, where * is every other name."
    )

    train_after_groups: int = Field(
        0, ge=0, description="Ask for a training after so many new groups with something to learn from; 0: never."
    )
    train_every_s: float = Field(0.0, ge=0, description="Ask for a training every so many seconds; 0: never.")
    train_baseline: Baseline | None = Field(
        None,
        description="What these trainings compare a rollout with, and groups are counted by: program, or group; "
        "program if not set.",
    )
    golden_from_traffic: bool = Field(
        True,
        description="Ask candidates logged tasks of users, too, before any user gets their answers; false: only the "
        "golden set.",
    )
    golden_deadline_s: float = Field(
        14_400.0,
        gt=0,
        description="Seconds for all that a candidate is asked before its live test; what has no answer then expires "
        "together.",
    )
    replay_prompts: int = Field(
        256, ge=1, description="Logged prompts that a candidate is asked at most before its live test."
    )
    validation_timeout_s: float = Field(300.0, gt=0, description="Seconds every replica may take to load a candidate.")
    experiment_max_units: int = Field(
        5000,
        ge=1,
        description="Budget of an experiment: tasks (or sessions) of both arms; then it is inconclusive. A watch "
        "begins anew after as many.",
    )
    experiment_min_units_per_arm: int = Field(20, ge=0, description="Tasks of each arm before a promotion.")
    experiment_min_age_s: float = Field(
        86_400.0,
        ge=0,
        description="Seconds an experiment runs before a promotion: a day. A week (604800) where weekends bring "
        "other traffic.",
    )
    experiment_alpha: float = Field(
        0.05,
        gt=0,
        le=0.5,
        description="Rate of false roll-backs of an equal candidate, and of false promotions of the first one; of "
        "all candidates together twice that.",
    )
    promote_goal: Literal["better", "cheaper"] = Field(
        "better",
        description="What a candidate must prove: better, a gain in score; cheaper, fewer sampled tokens, at a loss "
        "of less than RATCHET_CHEAPER_MARGIN.",
    )
    cheaper_margin: float = Field(
        0.02, gt=0, lt=0.5, description="Loss of score that a cheaper candidate must be proved to stay below."
    )
    promote_on: Literal["single", "served"] = Field(
        "single",
        description="What a candidate must be better in: single, the score of one answer; served, that of the best "
        "of a group.",
    )
    success_margin: float = Field(
        0.05,
        gt=0,
        lt=0.5,
        description="Loss of success, and growth of refusals, that must be ruled out before a promotion: against the "
        "primary, and since v1.0.0.",
    )
    length_limit: float = Field(
        1.3,
        gt=1,
        description="How many times as long as v1.0.0's, and as the primary's, answers may become by promotions.",
    )
    latency_limit: float = Field(
        2.0, gt=1, description="How many times v1.0.0's latency, and the primary's, may be reached by promotions."
    )
    program_length_limit: float = Field(
        3.0,
        gt=1,
        description="How many times as many tokens as the agent's first program's, and as the present one's, rollouts "
        "may have by promotions of programs.",
    )
    program_latency_limit: float = Field(
        3.0, gt=1, description="How many times the latency of these may be reached by promotions of programs."
    )
    watch_share: float = Field(
        0.05,
        ge=0,
        lt=0.5,
        description="Share of the traffic that an older version goes on answering, so that harm is found; twice as "
        "much at first; 0: nothing watches.",
    )
    audit_share: float = Field(
        0.05, ge=0, le=1, description="Share of the tasks that the auditor sees, where there is one (RATCHET_AUDITOR)."
    )
    audit_experiment_share: float = Field(
        1.0, gt=0, le=1, description="The same, of the tasks of a canary: it is what a promotion needs."
    )
    audit_margin: float = Field(
        0.02, gt=0, le=0.5, description="Loss of the auditor's score that must be ruled out before a promotion."
    )
    audit_timeout_s: float = Field(
        300.0,
        gt=0,
        description="Seconds that an experiment waits for a second verdict, by the auditor or by the scorer.",
    )
    served_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the tasks of a canary whose served answer gets a second verdict, as a promotion needs; "
        "0: a promotion does not need it.",
    )
    served_margin: float = Field(
        0.02,
        gt=0,
        le=0.5,
        description="Loss of score in what users are served that the second verdicts must rule out before a promotion.",
    )
    cool_down_s: float = Field(0.0, ge=0, description="Seconds before the next experiment after one that failed.")
    anchor_every_s: float = Field(
        3600.0, ge=0, description="Seconds between two scorings of the anchors, which tell a drifting scorer; 0: never."
    )
    anchor_tolerance: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Mean change of the anchors' scores that is no drift yet. Keep it at half the judge's noise or "
        "above.",
    )
    cascade: str = Field(
        "",
        description="Agents in whose place a bigger one answers until they are proved to do as well, as small=big, by "
        "comma; both are agents of the fleet. Nobody if not set.",
    )
    cascade_margin: float = Field(
        0.02, gt=0, lt=0.5, description="Loss of score against the big model alone that must be ruled out."
    )
    cascade_audit: float = Field(
        0.1, gt=0, le=1, description="Share of the tasks that both models may answer, for evidence."
    )
    cascade_route_by: Literal["score", "agreement"] = Field(
        "score",
        description="What says that the small model may answer: the best score of its group; or agreement, the share "
        "of the group that says the same, where no scorer sees references.",
    )
    cascade_on_failure: Literal["small", "wait"] = Field(
        "small",
        description="What becomes of a task that the big model doesn't answer: small, the user gets the small model's "
        "best answer, and is told so; wait, it waits until its deadline.",
    )
    cascade_timeout_s: float = Field(
        60.0, gt=0, description="Seconds that the big model may take, with RATCHET_CASCADE_ON_FAILURE=small."
    )
    cascade_daily_cap: float = Field(
        0.0, ge=0, description="The most that a big model may cost on one day (UTC), at RATCHET_PRICES; 0: no cap."
    )
    keep_adapters: int = Field(
        5, ge=1, description="Newest adapter folders kept for each agent, besides those in use or still to be tried."
    )

    @field_validator("chat_models")
    @classmethod
    def _name_agents(cls, chat_models: str, info: ValidationInfo) -> str:
        agents = info.data.get("agents", ())
        for name, agent in pairs(chat_models).items():
            if not name or agent not in agents:
                raise ValueError(f"{name}={agent} names no agent: write <name>=<agent>; there are {', '.join(agents)}")
        return chat_models

    @field_validator("cascade")
    @classmethod
    def _name_both_models(cls, cascade: str, info: ValidationInfo) -> str:
        agents = info.data.get("agents", ())
        for small, big in pairs(cascade).items():
            if small not in agents or big not in agents or small == big:
                raise ValueError(f"{small}={big}: write two agents of the fleet, which has {', '.join(agents)}")
        return cascade

    @model_validator(mode="after")
    def _can_pool(self) -> Self:
        if (self.pool is not None) is not bool(self.fleet_number) or (self.pool and self.pooled_logs):
            raise ValueError("RATCHET_POOL and RATCHET_FLEET_NUMBER (from 1) go together, and not with POOLED_LOGS")
        if self.fleet is not None and (self.cascade or self.programs is not None):
            raise ValueError("fleets that pool their evidence have no cascade and no programs: unset RATCHET_POOL")
        return self

    @property
    def fleet(self) -> int | None:
        """This fleet's number among those that pool their evidence; None where it is alone."""
        return self.fleet_number if self.pool or self.pooled_logs else None

    @property
    def cascade_plan(self) -> CascadePlanRecord:
        return CascadePlanRecord(margin=self.cascade_margin, alpha=self.experiment_alpha, audit=self.cascade_audit)

    @property
    def objectives(self) -> Objectives:
        from services.orchestrator.metrics import Objectives

        return Objectives(self.objective_availability, self.objective_latency, self.objective_latency_s)

    @property
    def experiments(self) -> ExperimentPolicy:
        from ratchet.experiments.type_veto import threshold_of
        from services.orchestrator.promotion.experiment_transitions import ExperimentPolicy

        canary = ExperimentPlan(
            experiment_id="policy",
            rule=3,
            goal=self.promote_goal,
            min_gain=0.0 if self.promote_goal == "better" else -self.cheaper_margin,
            session_tasks=1,
            alpha=self.experiment_alpha,
            roll_back_at=threshold_of(self.experiment_alpha),
            by_intention=True,
            metric=self.promote_on,
            max_units=self.experiment_max_units,
            min_units_per_arm=self.experiment_min_units_per_arm,
            min_age_s=self.experiment_min_age_s,
            success_margin=self.success_margin,
            audit=AuditRule(share=self.audit_experiment_share, margin=self.audit_margin) if self.auditor else None,
            served=self._served,
            limits=self._limits(self.length_limit, self.latency_limit),
        )
        return ExperimentPolicy(
            canary,
            timedelta(seconds=self.cool_down_s),
            self.watch_share,
            self.audit_share,
            self._limits(self.program_length_limit, self.program_latency_limit),
        )

    @property
    def _served(self) -> ServedRule | None:
        share = self.audit_experiment_share if self.auditor else self.served_share
        may_lose = self.cheaper_margin if self.promote_goal == "cheaper" else 0.0
        return ServedRule(share=share, margin=max(self.served_margin, may_lose)) if self.served_share else None

    def _limits(self, length: float, latency: float) -> Limits:
        return Limits(success=self.success_margin, refused=self.success_margin, length=length, latency=latency)

    @property
    def training(self) -> TrainingPolicy:
        from services.orchestrator.training.trigger import TrainingPolicy

        references = "reference" in self.demonstrations
        return TrainingPolicy(
            self.train_after_groups, self.train_every_s, self.train_baseline, references, self.replay_share
        )

    @property
    def adaptive(self) -> SamplesPolicy:
        from services.orchestrator.tasks.adaptive_samples import SamplesPolicy

        trains = bool(self.train_after_groups or self.train_every_s)
        return SamplesPolicy(self.samples, self.adaptive_samples, self.adaptive_margin, trains)

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            n=self.samples, temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, max_tokens=self.max_tokens
        )
