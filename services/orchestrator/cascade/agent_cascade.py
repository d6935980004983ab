"""One agent's cascade: which of its tasks a big model answers, by the rule, and what was decided on the share.

The registry says where the share stands, the log what counts as evidence since then: a restart reads both. Asking the
models and having answers judged is cascades.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.cascade import NOTHING, SHARES
from ratchet.experiments.cascade_trial import CascadeTrial, pair_of, read_routed, record_of
from ratchet.logs.best_answer import best, choose_answer, votes
from ratchet.logs.cascaded import big_task_of, experiment_of, with_routing
from ratchet.logs.names import AUDITS, INTERACTIONS, is_own
from ratchet.logs.segments import read_start_offsets
from ratchet.service.errors import one_line
from ratchet.service.prices import Prices
from ratchet.service.telemetry import Log
from schemas.api.cascade import CascadeEvidenceView, CascadeView
from schemas.messages.work import Arm, Work
from schemas.records.cascade import BigAnswer, CascadeState, Routing
from schemas.records.decision import DecisionDraft, MoveCascade
from schemas.records.interaction import Interaction
from schemas.records.registry import CascadeStanding
from services.orchestrator import metrics
from services.orchestrator.auditing.audits import AuditLog
from services.orchestrator.cascade.spending import Spending
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.promotion.arms import Arms, ReadRegistry
from services.orchestrator.settings import OrchestratorSettings

log = Log("cascade")

WHO = "orchestrator"


@dataclass(eq=False)
class AgentCascade:
    arms: Arms
    big: Arms
    settings: OrchestratorSettings
    store: RegistryStore
    ledger: Ledger
    audit_log: AuditLog
    read_registry: ReadRegistry
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        settings = self.settings
        prices = Prices.read(settings.prices).agents if settings.prices else {}
        of_both = prices.get(self.arms.agent_id), prices.get(self.big.agent_id)
        self.spending = Spending(*of_both, settings.cascade_daily_cap)
        self.waits = settings.cascade_on_failure == "wait"
        """A task that the big model doesn't answer waits, and ends without an answer."""
        self.trial: CascadeTrial | None = None
        """None until it was taken up."""
        self._judged_by: dict[str, str] = {}
        """Scorer and big model of the first evidence of this state."""
        self._changed: str | None = None
        self._undecided: DecisionDraft | None = None
        self._deciding = asyncio.Lock()

    @property
    def agent_id(self) -> str:
        return self.arms.agent_id

    @property
    def standing(self) -> CascadeStanding | None:
        return self.arms.adapters.cascade

    # --- routing ---------------------------------------------------------------------------------------------------

    def routes(self, work: Work) -> bool:
        """Tell whether the big model may answer this task in the small one's place."""
        elsewhere = work.local_only or work.adapter_version is not None or work.work_to is not None
        elsewhere = elsewhere or work.registered_agent is not None  # its program was asked
        return self.trial is not None and not elsewhere and not is_own(work.arm.experiment_id)

    @property
    def answers_nothing(self) -> bool:
        """True while the big model answers every task: then it is asked at once."""
        return self.trial is not None and self.trial.cascade.step == 0

    def arm_of_big(self, sequence: int) -> Arm:
        """Return the arm of a task that asks the big model in the small one's place."""
        return self.big.arm(self.big.adapters.primary, sequence, experiment_id=experiment_of(self.agent_id))

    def route(self, work: Work, lines: Sequence[Interaction]) -> Routing:
        """Tasks of a version on trial, or of a holdback, are routed alike and are no evidence."""
        assert self.trial is not None
        counts = work.arm.adapter_version == self.trial.state.small
        return self.trial.route(work.task_id, self._score(lines), counts=counts)

    def _score(self, lines: Sequence[Interaction]) -> float | None:
        line = choose_answer(lines)
        if self.settings.cascade_route_by == "agreement" and line.sample is not None:
            return votes(lines, line) / len(lines)
        return line.score

    def close_lines(
        self, lines: Sequence[Interaction], routing: Routing, answer: Sequence[Interaction] | str
    ) -> list[Interaction]:
        """Return the lines of a task that was routed to the big model, with its answer, or why there is none."""
        if not isinstance(answer, str) and answer[0].sample is not None:
            line = best(answer)
            given = BigAnswer(
                task_id=line.task_id,
                agent_id=line.agent_id,
                adapter_version=line.adapter_version,
                response=line.response or "",
                score=line.score,
                finish_reason=line.finish_reason,
                engine=line.engine,
                teaches=line.score is not None and line.score >= (best(lines).score or 0.0),
            )
            return with_routing(lines, routing.model_copy(update={"big": given, "served": "big"}))
        why = one_line(answer if isinstance(answer, str) else answer[0].reason or "it failed")
        if self.waits:
            changed = {"served": None, "reason": f"the big model has not answered: {why}"}
        else:
            said = f"the big model has not answered ({why}): this is the small model's best answer"
            changed = {"served": "small", "reason": said}
        return with_routing(lines, routing.model_copy(update=changed))

    def note_closed(self, lines: Sequence[Interaction], routing: Routing) -> None:
        """A routed task has its lines in the log."""
        self.spending.add_small(lines)
        in_place = routing.to == "big" and routing.served == "small"
        self.spending.add_served(routing.served, in_place=in_place)
        metrics.cascade_tasks.labels(self.agent_id, routing.served or "nobody").inc()
        self._note_judge(lines[0])

    def _note_judge(self, line: Interaction) -> None:
        """Another scorer ends the attempt: its scores can't be held against those of before. So does another model."""
        if line.adapter_version != self.arms.adapters.primary:
            return
        scorer, big = line.scorer, line.cascade and line.cascade.big
        named = {
            "the scorer": scorer and f"{scorer.id} {scorer.revision} {scorer.rubric_sha256 or ''}".strip(),
            f"the model behind {self.big.agent_id}": big and big.engine,
        }
        for what, found in named.items():
            if found and (known := self._judged_by.setdefault(what, found)) != found:
                self._changed, self._judged_by[what] = f"{what} is {found} now, not {known}", found

    # --- its share -------------------------------------------------------------------------------------------------

    async def start(self) -> list[tuple[int, str]]:
        """Take up what the registry and the log say, or begin. Returns the audited units without a verdict: by their
        order the task. Raises RegistryError, JournalError.
        """
        standing = self.standing
        if standing is None:
            state = self._state(step=0, attempt=1, cut=record_of(NOTHING), order=0)
            self.trial = CascadeTrial(state, self._secret(state) or "")
            await self._decide(self._draft("begin", state, f"{self.big.agent_id} answers in its place", {}))
            return []
        state = standing.state
        secret = self._secret(state)
        trial = CascadeTrial(state, secret or "")
        routed = await asyncio.to_thread(read_routed, self.ledger.folder, self.agent_id, state, self._note_judge)
        trial.take_up(routing for routing, _ in routed.values())
        unfinished = []
        for order in trial.waiting:
            task_id = routed[order][1]
            big = big_task_of(task_id)
            verdict = self.audit_log.find(big) or self.audit_log.find(f"{big}\nscorer")
            if verdict is None:
                unfinished.append((order, task_id))
            else:
                trial.resolve(order, pair_of(verdict))
        self.trial = trial
        floor = (await asyncio.to_thread(read_start_offsets, self.ledger.folder)).begin(INTERACTIONS)
        if state.big != self.big.agent_id:
            self._changed = f"{self.big.agent_id} answers in its place now, not {state.big}"
        elif secret is None:
            self._changed = "the key that draws its units is gone or another"
        elif state.positions.get(INTERACTIONS, 0) < floor:
            self._changed = "a part of its evidence was removed from the log"
        return unfinished

    async def turn(self) -> None:
        """Observe the evidence, and decide where it says so. Raises RegistryError."""
        trial, standing = self.trial, self.standing
        if trial is None:
            return
        trial.cascade.is_frozen = bool(self.arms.adapters.frozen or (standing and standing.frozen))
        async with self._deciding:
            if self._undecided is not None:
                await self._decide(self._undecided)
            primary = self.arms.adapters.primary
            if primary != trial.state.small:
                self._changed = f"{primary} is the primary now, not {trial.state.small}"
            if self._changed is not None:
                trial.renew()
                await self._begin("anew", self._changed)
                self._changed = None
            while (move := trial.observe()) is not None:
                evidence = trial.cascade.decided_by
                assert evidence is not None
                margin = f"than {self.big.agent_id} alone by {trial.state.plan.margin:g}: {trial.cascade.share:.0%}"
                why = {
                    "raise": f"proved not worse {margin}",
                    "fall": f"proved worse {margin}",
                    "anew": f"no step was proved in {evidence.units:,} units: the evidence begins anew",
                }
                await self._begin(move, why[move], asdict(evidence))
        self._show()

    async def set_share(self, share: float, operator: str, reason: str) -> None:
        """Set the share by an operator's word, without a proof. Raises ValueError, RegistryError."""
        if self.trial is None or share not in SHARES:
            raise ValueError(f"the share is one of {', '.join(f'{one:g}' for one in SHARES)}")
        async with self._deciding:
            self.trial.renew(step=SHARES.index(share))
            await self._begin("set", reason, who=f"operator:{operator}")

    async def _begin(self, cause: str, reason: str, evidence: dict[str, object] | None = None, who: str = WHO) -> None:
        """Begin the state that the rule is in by now; what was routed before is no evidence of it."""
        trial = self.trial
        assert trial is not None
        cascade, before = trial.cascade, trial.state
        state = self._state(
            step=cascade.step, attempt=cascade.attempt, cut=record_of(cascade.cut), order=trial.next_order
        )
        told = self._secret(before)
        trial.begin(state, self._secret(state) or "")
        self._judged_by = {}
        draft = self._draft(cause, state, reason, evidence or {}, who)
        if told:
            draft = draft.model_copy(update={"draws": {before.draw_id: told}})
        await self._decide(draft)

    async def _decide(self, draft: DecisionDraft) -> None:
        """Into the ledger of decisions; what fails is tried again at the next turn. Raises RegistryError."""
        self._undecided = draft
        await asyncio.to_thread(self.store.update, lambda _: draft)
        self._undecided = None
        metrics.decisions.labels(self.agent_id, draft.move.kind).inc()
        await self.read_registry(self.agent_id)
        log.info("decided", draft.reason, agent_id=self.agent_id)

    def _draft(
        self, cause: str, state: CascadeState, reason: str, evidence: Mapping[str, object], who: str = WHO
    ) -> DecisionDraft:
        fields = {"agent_id": self.agent_id, "who": who, "at": self.clock(), "reason": one_line(reason)}
        return DecisionDraft.model_validate(
            fields | {"move": MoveCascade(cause=cause, state=state), "evidence": evidence}
        )

    def _state(self, **where: object) -> CascadeState:
        draw_id = f"cascade-{self.agent_id}-{where['attempt']}-{where['step']}-{where['order']}"
        draws = self.store.draws
        return CascadeState.model_validate(
            {
                "big": self.big.agent_id,
                "small": self.arms.adapters.primary,
                "plan": self.settings.cascade_plan,
                "positions": self.ledger.positions() | {AUDITS: self.audit_log.end},
                "draw_id": draw_id,
                "draw_sha256": draws.commitment(draw_id) if draws else None,
            }
            | where
        )

    def _secret(self, state: CascadeState) -> str | None:
        """Return what keys its draws; None where the key is gone or another."""
        draws = self.store.draws
        return draws.secret_named(state.draw_id, state.draw_sha256) if draws else ""

    # --- what is shown ---------------------------------------------------------------------------------------------

    def _show(self) -> None:
        view = self.view()
        metrics.cascade_share.labels(self.agent_id).set(view.share)
        for model, cost in (("small", view.small_cost), ("big", view.big_cost), ("big_alone", view.big_alone)):
            if cost is not None:
                metrics.cascade_cost.labels(self.agent_id, model).set(cost)
        metrics.cascade_e_value.labels(self.agent_id, "not_worse").set(view.evidence.not_worse)
        metrics.cascade_e_value.labels(self.agent_id, "worse").set(view.evidence.worse)
        metrics.cascade_threshold.labels(self.agent_id).set(view.evidence.raise_at)

    def view(self) -> CascadeView:
        """Return the cascade as people are told of it."""
        assert self.trial is not None
        cascade, totals = self.trial.cascade, self.spending.totals
        alone, spent = self.spending.big_alone, totals.small_cost + totals.big_cost
        answered = totals.by_small + totals.by_big
        standing = self.standing
        return CascadeView(
            agent_id=self.agent_id,
            big=self.big.agent_id,
            share=cascade.share,
            next_share=SHARES[cascade.step + 1] if cascade.step + 1 < len(SHARES) else None,
            attempt=cascade.attempt,
            since=standing.since if standing else None,
            frozen=bool(standing and standing.frozen),
            answered_by_small=totals.by_small,
            answered_by_big=totals.by_big,
            in_place=totals.in_place,
            share_answered=totals.by_small / answered if answered else None,
            small_cost=totals.small_cost,
            big_cost=totals.big_cost,
            big_alone=alone,
            saved=None if alone is None else alone - spent,
            spent_today=self.spending.spent_on(self.clock().date()),
            daily_cap=self.settings.cascade_daily_cap or None,
            evidence=CascadeEvidenceView.model_validate(asdict(cascade.evidence)),
        )
