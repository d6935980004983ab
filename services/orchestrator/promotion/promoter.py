"""One agent's adapters on their way: trained, validated, tried on live traffic, promoted or rolled back, retired.

Its programs' way is program_trials.py, a part of the same loop.

A loop over the registry, which is the truth: every step is a decision in it, so a kill between two steps loses none. An
operator's decisions are picked up from the same file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from datetime import datetime
from time import monotonic

from pydantic import JsonValue

from ratchet.adapters.folder import VERSION
from ratchet.adapters.manifest import read_card, version_key
from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.retention import remove_version_folder, to_archive
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.records import position_of
from ratchet.experiments.replay import plan_of, replayed_together
from ratchet.experiments.served import unaudited_judge
from ratchet.files.append_file import disk_errors
from ratchet.logs.follower import AdaptersInUse, read_follower_note
from ratchet.logs.names import INTERACTIONS, POOLED
from ratchet.logs.segments import read_start_offsets
from ratchet.service.errors import (
    AdapterError,
    JournalError,
    NotAllowed,
    OtherModel,
    Reject,
    StorageUnavailable,
    one_line,
)
from ratchet.service.telemetry import Log
from schemas.api.status import HeldUp
from schemas.messages.adapter_event import AdapterMove
from schemas.messages.training import AdapterTrained
from schemas.messages.work import Work
from schemas.records.decision import (
    Archive,
    Conclude,
    DecisionDraft,
    Distrust,
    Move,
    Register,
    RejectVersion,
    RollBack,
    RunningExperiment,
    StartExperiment,
    Trust,
    Validate,
)
from schemas.records.evidence import ExperimentDecision, Verdict
from schemas.records.interaction import Interaction
from schemas.records.registry import BEFORE_TRAFFIC, AdapterEntry, AgentAdapters, EntryState, Registry
from services.orchestrator import metrics
from services.orchestrator.clocks import now
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.experiment_transitions import (
    CoolDown,
    Where,
    canary,
    event_of,
    move_after_verdict,
    next_candidate,
    next_watch,
)
from services.orchestrator.promotion.gate import Gate, Pauses
from services.orchestrator.promotion.program_trials import Declared, ProgramTrials
from services.orchestrator.promotion.replicas import Announcer, Replicas, SwapClock
from services.orchestrator.promotion.team import Team
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.training.scheduler import TrainingScheduler

log = Log("promoter")

WHO = "orchestrator"
ANNOUNCE_EVERY_S = 5.0
LARGEST_EVIDENCE = 64 * 1024
"""Bytes of a trainer's metrics that are kept with the decision to register."""


@dataclass(eq=False)
class Promoter:
    """`told`: what each runner says of the agent's programs; nothing where there is none. `positions`: the ends of the
    logs that count in an experiment.
    """

    arms: Arms
    announcer: Announcer
    replicas: Replicas
    gate: Gate
    training: TrainingScheduler
    store: RegistryStore
    ledger: Ledger
    settings: OrchestratorSettings
    positions: Callable[[], Mapping[str, int]]
    told: InitVar[Callable[[], Sequence[Declared]]]

    def __post_init__(self, told: Callable[[], Sequence[Declared]]) -> None:
        self._policy = self.settings.experiments
        self._cool_down = CoolDown(self._policy.cool_down)
        self._agent_id = self.arms.agent_id
        self._validation: asyncio.Task[None] | None = None
        self._announced = 0
        """The revision that replicas were told of last."""
        self._announced_at = float("-inf")
        self._swap = SwapClock(self.arms.agent_id)
        self._held_back = set[str]()
        self._learned = set[str]()
        self._pauses = Pauses(now, monotonic)
        self._team = Team(self.arms)
        self._programs = ProgramTrials(
            self.arms,
            self._policy,
            told,
            self.gate.shadow.judge_program,
            self._decide,
            self._where,
            monotonic,
            self._pauses,
        )

    # --- what the orchestrator gives it ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what was running and finish what a crash cut short, once the ledger is open.

        An experiment that these logs do not tell any more is aborted. Raises RegistryError, StorageUnavailable.
        """
        metrics.expect(self._agent_id)
        registry = await asyncio.to_thread(self.store.read)
        running = registry.agent(self._agent_id).running
        if self.arms.fleet is not None:  # what counts comes from the pooled log
            self._take(registry, self._experiments_of(registry))
            if not self.arms.follows:
                for one in running:
                    if position_of(one, POOLED) is None:
                        await self._end(one, Verdict.ABORT, "it began before the fleets pooled their evidence")
                self.training.start()
            return
        try:
            experiments = await asyncio.to_thread(replayed_together, running, self.ledger.folder, self._secret_of)
            self._take(registry, experiments)
        except StorageUnavailable:
            raise
        except JournalError as error:
            self._take(registry, self._experiments_of(registry))
            await self.abort(f"it began in another logs folder, or its part of the log is gone: {error}")
        self.training.start()

    def note_closed(self, work: Work, lines: list[Interaction]) -> None:
        """A task of this agent has its lines in the log."""
        self.arms.note_closed(work, lines)
        self.training.note_closed(lines)
        self._swap.note_answer(work, lines)

    async def register_trained(self, message: AdapterTrained) -> None:
        """Make a trained adapter known, or that it was refused, and why. Raises RegistryError, Reject."""
        if self.arms.follows:
            raise Reject("this fleet follows another's decisions: trainings are that fleet's (RATCHET_POOL)")
        version = message.adapter_version if message.status == "trained" else None
        move, refused = await asyncio.to_thread(self._registration, message) if version else (None, None)
        if refused is not None:
            message = message.model_copy(update={"status": "refused", "reason": refused})
        try:
            if move is not None:
                await self._decide(
                    move, f"trained in run {message.request_id}", evidence=_bound_metrics(message.metrics)
                )
            else:
                await self._not_trained(message, version)
        finally:  # not before: while it is not registered, the next training would be asked for
            self.training.note_outcome(message)
            metrics.trainings.labels(self._agent_id, message.status).inc()

    async def _not_trained(self, message: AdapterTrained, version: str | None) -> None:
        reason = one_line(message.reason or message.status)
        log.warning("not-trained" if version is None else "not-registered", reason, agent_id=self._agent_id)
        if version is not None and VERSION.fullmatch(version):
            await self._decide(RejectVersion(version=version), reason)

    def _registration(self, message: AdapterTrained) -> tuple[Register | None, str | None]:
        """The move that makes a trained adapter known, or why it can't be. Blocks; raises StorageUnavailable."""
        version = str(message.adapter_version)
        folder = self.store.folder / self._agent_id / version
        try:
            with disk_errors(folder):
                move = registration(folder, self.store.folder)
        except (AdapterError, OSError) as error:
            return None, one_line(f"{one_line(version, 40)} was trained, but is not there to be registered: {error}")
        if move.sha256 != message.adapter_sha256:
            sums = f"its sha256 is {move.sha256[:8]}…, not {str(message.adapter_sha256)[:8]}…"
            return None, f"{version} is not what was trained, so it was not registered: {sums}"
        return move, None

    async def abort(self, reason: str) -> None:
        """End what runs without a winner: its measure can't be trusted. Raises RegistryError."""
        for running in self.arms.adapters.running:
            await self._end(running, Verdict.ABORT, reason)

    async def _end(
        self, running: RunningExperiment, verdict: Verdict, reason: str, proof: ExperimentDecision | None = None
    ) -> None:
        """A canary without a winner is nobody's fault: its data may be learnt from again."""
        move = move_after_verdict(running, verdict, self._policy, self._where(), proof.evidence if proof else None)
        if running.kind == "canary" and running.contest == "adapters" and isinstance(move, Conclude):
            self.training.give_back(running.treatment)
        await self._decide(move, reason, verdict=proof, running=running)

    @property
    def adapters(self) -> AgentAdapters:
        return self.arms.adapters

    async def distrust(self, reason: str) -> None:
        """The scorer has moved: end what is judged by it; no training, no experiment. Raises RegistryError."""
        await self.abort(reason)
        await self._decide(Distrust(), reason)

    async def trust(self, reason: str) -> None:
        """It is back, or another one. Raises RegistryError."""
        await self._decide(Trust(), reason)

    # --- its loop --------------------------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Do what there is to do. Raises RegistryError, BusError, JournalError; the next turn tries again."""
        await self.read_registry()
        if self.announcer.revision != self._announced:
            await self._announce()
        if not self.arms.follows:
            await self._decide_what_is_due()
        self._show()
        if monotonic() - self._announced_at > ANNOUNCE_EVERY_S:
            await self._announce()

    async def _decide_what_is_due(self) -> None:
        await self._note_what_was_learned()
        await self._programs.end_of_another()
        await self._follow_partners()
        for running, experiment in self.arms.trials:
            if experiment.final is not None:
                await self._carry_out(running, experiment.final)
        if not all(experiment.can_draw for _, experiment in self.arms.trials):
            await self.abort("the key that draws its arms is gone or another: see RATCHET_DECISION_KEYS")
        self._validate_next()
        if self._is_trusted and self._team.may_watch():
            await self._start_watch()
        if self._team.may_try():
            await self._programs.turn()
            if self._is_trusted:
                await self._start_experiment()
        await self.training.ask_if_due(allowed=self._may_train(), primary=self.arms.adapters.primary)
        await self._retire()

    @property
    def _is_trusted(self) -> bool:
        """True if the scorer is trusted with the tasks that judge this agent."""
        return self.adapters.distrusted is None and self.arms.first.adapters.distrusted is None

    async def _follow_partners(self) -> None:
        """End what a change of a partner leaves without ground. Raises RegistryError, BusError."""
        for running in self.adapters.running:
            reason = self._team.why_void(running)
            if reason is None and not self._is_trusted:
                reason = f"the scorer is not trusted with the tasks of {self.arms.first.agent_id}"
            if reason is not None:
                await self._end(running, Verdict.ABORT, reason)
        if (reason := self._team.why_to_roll_back()) is not None:
            try:
                await self._decide(RollBack(version=self.adapters.primary), reason)
            except NotAllowed as error:
                self._hold_back(f"{reason}; it can't be rolled back: {error}")

    async def stop(self) -> None:
        self.training.stop()
        self._programs.stop()
        if self._validation is not None:
            self._validation.cancel()
            await asyncio.gather(self._validation, return_exceptions=True)

    def _show(self) -> None:
        metrics.show_experiment(self._agent_id, self.arms.experiment)
        metrics.show_watch(self._agent_id, self.arms.watch)

    async def read_registry(self) -> None:
        """Follow it as it is on disk now; the next turn announces it. Raises RegistryError, JournalError, OSError."""
        registry = await asyncio.to_thread(self.store.read)
        if registry.revision != self.announcer.revision:
            self._follow(registry, self._experiments_of(registry))

    def _follow(self, registry: Registry, experiments: Mapping[str, Experiment]) -> None:
        """Never backwards: of two reads at the same time the older may come back last."""
        if registry.revision < self.announcer.revision:
            return
        before = self.arms.adapters.primary
        self._take(registry, experiments)
        if (primary := self.arms.adapters.primary) != before:
            self._swap.began(primary, self.arms.adapters.versions[primary].since or now())

    def _take(self, registry: Registry, experiments: Mapping[str, Experiment]) -> None:
        self.announcer.revision = registry.revision
        adapters = registry.agent(self._agent_id)
        experiment, watch = (
            experiments[running.experiment_id] if running else None for running in (adapters.experiment, adapters.watch)
        )
        self.arms.follow(adapters, experiment, watch)
        metrics.show_primary(self._agent_id, self.arms.adapters)

    def _experiments_of(self, registry: Registry) -> dict[str, Experiment]:
        """Those that run, by id: ours where we have it, else a fresh one, of which nothing is in the logs yet."""
        ours = {running.experiment_id: experiment for running, experiment in self.arms.trials}
        return {
            running.experiment_id: ours.get(running.experiment_id)
            or Experiment(plan_of(running), self._secret_of(running))
            for running in registry.agent(self._agent_id).running
        }

    def _secret_of(self, running: RunningExperiment) -> str | None:
        """Return what draws its arms; None where the key of the draws is gone or another. Raises RegistryError."""
        return self.store.draws.secret(running) if self.store.draws else ""

    async def _carry_out(self, running: RunningExperiment, verdict: ExperimentDecision) -> None:
        try:
            await self._end(running, verdict.verdict, _reason(verdict), verdict)
        except NotAllowed as error:
            self._hold_back(
                f"{running.experiment_id} ended with {verdict.verdict}, which can't be carried out: {error}"
            )

    def _hold_back(self, reason: str) -> None:
        """Said once: the verdict waits for an operator."""
        if reason not in self._held_back:
            log.warning("held-back", reason, agent_id=self._agent_id)
        self._held_back.add(reason)

    def _validate_next(self) -> None:
        if self._validation is not None and not self._validation.done():
            return
        waiting = [
            entry.version
            for entry in self._in_state(EntryState.TRAINED)
            if self._pauses.is_over(entry.version) and self._fits(entry)
        ]
        if waiting:
            first = self.arms.adapters.versions[min(waiting, key=version_key)]
            self._validation = asyncio.create_task(self._validate(first))

    def _in_state(self, *states: EntryState) -> list[AdapterEntry]:
        return [entry for entry in self.arms.adapters.versions.values() if entry.state in states]

    def _fits(self, entry: AdapterEntry) -> bool:
        """True if the agent runs its model, as far as is known."""
        return self.gate.other_model(entry) is None

    @property
    def held_up(self) -> list[HeldUp]:
        """Candidates that get no further, and why."""
        others = [(entry, self.gate.other_model(entry)) for entry in self._in_state(*BEFORE_TRAFFIC)]
        not_tried = [
            HeldUp(name=entry.version, reason=why, tries=0, again_at=None) for entry, why in others if why is not None
        ]
        tried = [entry.version for entry, why in others if why is None and entry.state is EntryState.TRAINED]
        asked = self.arms.adapters.programs.asked
        return [*not_tried, *self._pauses.among([*tried, *([asked] if asked else ())])]

    async def _validate(self, entry: AdapterEntry) -> None:
        try:
            verdict = await self.gate.validate(entry)
            passed: Move = Validate(version=entry.version, replayed=verdict.replayed)
            move = passed if verdict.passed else RejectVersion(version=entry.version)
            await self._decide(move, verdict.reason, evidence=verdict.evidence)
            self._pauses.forget(entry.version)
        except OtherModel as error:
            log.warning("other-model", f"{entry.version} is not tried: {error}", agent_id=self._agent_id)
        except Exception as error:
            pause = self._pauses.note_failure(entry.version, str(error))
            again = f"it is tried again in {pause:.0f} s"
            log.error("validation", f"{entry.version} could not be validated, {again}: {error}", exc_info=error)

    async def _start_watch(self) -> None:
        agent_id, adapters, where = self._agent_id, self.arms.adapters, self._where()
        move = next_watch(agent_id, adapters, self._policy, where, self._programs.watchable)
        if isinstance(move, StartExperiment):
            treatment, control = move.experiment.arms
            await self._decide(move, f"{treatment} is watched beside {control}")
        elif move is not None:
            reason = f"program {adapters.programs.primary} was promoted, and is watched first"
            await self._decide(move, reason, running=adapters.watch)

    async def _note_what_was_learned(self) -> None:
        """From the cards of versions that passed the gate: whoever had them trained, what they read counts as read."""
        for version, entry in self.arms.adapters.versions.items():
            new = entry.state in (EntryState.VALIDATED, EntryState.CANARY) and version not in self._learned
            if not new or not entry.folder:
                continue
            try:
                card = await asyncio.to_thread(read_card, self.store.folder / entry.folder)
            except AdapterError:
                continue  # its replicas say what is wrong with it
            read = [part for part in card.data.ranges if part.log == INTERACTIONS]
            if read:
                start, end = read[0].start, max(part.end for part in read)  # late corrections are behind the window
                floor = (await asyncio.to_thread(read_start_offsets, self.ledger.folder)).begin(INTERACTIONS)
                self.training.note_learned(version, 0 if start <= floor else start, end)
            self._learned.add(version)

    async def _start_experiment(self) -> None:
        adapters = self.arms.adapters
        if not self.replicas.reports(monotonic()):
            return  # who could say that the candidate is none for its model
        if (candidate := next_candidate(adapters, self._now(), self._fits)) is None:
            return
        move = canary(self._agent_id, candidate, adapters, self._policy, self._where())
        await self._decide(move, f"{candidate} is validated")

    def _may_train(self) -> bool:
        adapters = self.arms.adapters
        busy = any(self._fits(entry) for entry in self._in_state(*BEFORE_TRAFFIC))
        return not (busy or adapters.experiment or adapters.frozen) and self._is_trusted

    async def _retire(self) -> None:
        adapters = self.arms.adapters
        for version in to_archive(adapters, self.settings.keep_adapters):
            await self._decide(Archive(version=version), f"older than the newest {self.settings.keep_adapters}")
        for version, entry in self.arms.adapters.versions.items():
            if entry.state is EntryState.ARCHIVED and entry.folder and await self._is_drained_everywhere(entry):
                await asyncio.to_thread(remove_version_folder, self.store, self._agent_id, version, who=WHO, at=now())

    async def _is_drained_everywhere(self, archived: AdapterEntry) -> bool:
        """True if neither this fleet uses it, nor one that follows. Raises StorageUnavailable."""
        if not self._is_drained(archived.version):
            return False
        notes = [await asyncio.to_thread(read_follower_note, folder) for folder in self.settings.pooled_logs]
        return all(note is not None and note.is_done_with(self._agent_id, archived) for note in notes)

    def _is_drained(self, version: str) -> bool:
        return version not in self.arms.answering and not self.replicas.loading(version, monotonic()).loaded

    @property
    def in_use(self) -> AdaptersInUse:
        """Tell what a fleet that follows says of itself: which versions with a folder it still uses."""
        versions = (entry.version for entry in self.arms.adapters.versions.values() if entry.folder)
        used = (version for version in versions if not self._is_drained(version))
        return AdaptersInUse(self.announcer.revision, tuple(sorted(used)))

    def _where(self) -> Where:
        partners = self.arms.partner_versions
        draw_sha256 = self.store.draws.commitment if self.store.draws else None
        return Where(self.ledger.sequence, self.positions(), self._now(), partners, draw_sha256)

    def _now(self) -> datetime:
        return self._cool_down.now(self.arms.adapters.cool_down_until, now(), monotonic())

    async def _decide(
        self,
        move: Move,
        reason: str,
        *,
        evidence: object = None,
        verdict: ExperimentDecision | None = None,
        running: RunningExperiment | None = None,
    ) -> None:
        """Into the ledger of decisions, then into effect. Nothing where the registry has gone on without us."""
        proof = verdict.model_dump(mode="json") if verdict else evidence or {}
        draft = DecisionDraft.model_validate(
            {"agent_id": self._agent_id, "move": move, "who": WHO, "at": self._now(), "reason": one_line(reason)}
            | {"evidence": proof}
        )

        decided = False

        def still_right(registry: Registry) -> DecisionDraft | None:
            nonlocal decided
            decided = False
            adapters = registry.agent(self._agent_id)
            if running is not None and running not in adapters.running:
                return None
            if isinstance(move, Register) and move.version in adapters.versions:
                return None
            if isinstance(move, Validate | RejectVersion) and not _is_open(adapters.versions.get(move.version), move):
                return None  # an operator was faster
            if isinstance(move, StartExperiment) and self._team.is_taken(move.experiment, registry):
                return None  # a partner was faster
            decided = True
            return draft

        registry = await asyncio.to_thread(self.store.update, still_right)
        metrics.decisions.labels(self._agent_id, move.kind).inc(decided)
        self._follow(registry, self._experiments_of(registry))
        await self._announce(event_of(move, running), getattr(move, "version", None), reason)

    async def _announce(
        self, event: AdapterMove = "standing", version: str | None = None, reason: str | None = None
    ) -> None:
        self._announced_at, revision = monotonic(), self.announcer.revision
        await self.announcer.announce(event, version, reason)
        self._announced = revision


def _is_open(entry: AdapterEntry | None, move: Validate | RejectVersion) -> bool:
    """True if nobody has decided about the version; one that never became known can only be rejected."""
    return isinstance(move, RejectVersion) if entry is None else entry.state is EntryState.TRAINED


def _reason(verdict: ExperimentDecision) -> str:
    """The verdict's, and of a promotion whether anybody audited what proved it."""
    evidence = verdict.evidence
    gap = unaudited_judge(evidence.scorer, audited=evidence.gain_audit is not None)
    return f"{verdict.reason}; {gap}" if gap and verdict.verdict is Verdict.PROMOTE else verdict.reason


def _bound_metrics(metrics: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what a trainer tells, within bounds: the ledger that it goes into can't be cut."""
    size = len(json.dumps(metrics))
    return metrics if size <= LARGEST_EVIDENCE else {"left_out": f"metrics of {size:,} bytes"}
