"""One training run, from the request to the published adapter: read, select, refuse or train, report, publish.

May be killed at any moment and done again in the same folder: all choices are fixed there first, training goes on from
the newest checkpoint, and publishing is idempotent. It knows no queue and registers nothing.

Under `accelerate launch` every process runs this; the first one writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Literal

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from pydantic import JsonValue

from ratchet.adapters.evaluations import held_out_inputs, inputs_written_at, read_inputs, write_inputs
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.taught_logs import asked_by_the_gate
from ratchet.grammars.masks import Grammars
from ratchet.logs.names import FEEDBACK, INTERACTIONS, SEALS
from ratchet.logs.seals import read_seals
from ratchet.models.cpu_threads import CpuThreads
from ratchet.models.known import model_folder
from ratchet.models.loading import LanguageModel, identify, load_language_model
from ratchet.models.tokenization import answers_of
from ratchet.runs.progress import ProgressTracker
from ratchet.runs.run import NOTHING_AGAINST_IT
from ratchet.runs.store import RunFolder
from ratchet.service import failpoint
from ratchet.service.errors import RatchetError, TrainingRefused
from schemas.messages.base import BaseModelIdentity, Metadata
from schemas.messages.training import AdapterTrained, TrainRequest
from services.trainer.algorithms.algorithm import PolicyTrainer, TrainerInputs
from services.trainer.algorithms.hyperparameters import DEMONSTRATION_RATE, default_learning_rate
from services.trainer.algorithms.policy import make_policy, parent_folder, sample_ratios, token_logps
from services.trainer.data.demonstrations import Doubt, doubtful, load_demonstrations
from services.trainer.data.feedback_scores import read_feedback
from services.trainer.data.journal_scan import JournalScan, Scan
from services.trainer.data.samples import TrainingSample, load_samples
from services.trainer.data.selection import Selection, select
from services.trainer.data.support import (
    PolicyMatch,
    data_faults,
    match_of,
    policy_faults,
    too_different,
    version_faults,
)
from services.trainer.run.checkpoints import Checkpoints, newest_checkpoint, remove_broken
from services.trainer.run.choices import Choices, is_spread, make_choices, resolve
from services.trainer.run.held_out import look_at_held_out, restore_best
from services.trainer.run.progress import Emit, FreeThreads, RanAway, RunAwayStops, ShareReports, StepReports, curve
from services.trainer.run.report import Finished, metrics_of, plan_of, publish, report
from services.trainer.run.trackers import attach
from services.trainer.settings import TrainerSettings

MATCH_SAMPLES = 128
"""Samples, spread over all, that are compared with the parent before training."""


class Refused(TrainingRefused):
    """Carries the account of the data, and how they match the parent where that was measured."""

    def __init__(self, reason: str, selection: Selection, match: PolicyMatch | None = None) -> None:
        super().__init__(reason)
        self.counts = selection.counts
        self.figures = asdict(match) if match else {}


class RunExecution:
    def __init__(
        self, settings: TrainerSettings, folder: RunFolder, emit: Emit, now: Callable[[], datetime] | None = None
    ):
        self._settings = settings
        self._folder = folder
        self._now = now or (lambda: datetime.now(UTC))
        self._on_gpu = settings.trainer_device != "cpu" and torch.cuda.is_available()
        self._process = PartialState(cpu=not self._on_gpu)
        self._progress = ProgressTracker()
        self._tell: Emit = emit if self.writes else lambda _: None
        self._adapters = RegistryStore(settings.adapters_dir)
        self._threads: CpuThreads | None = None

    def _emit(self, event: Mapping[str, Any]) -> None:
        self._progress.record(event, time.monotonic())
        self._tell(event)

    @property
    def writes(self) -> bool:
        """True in the one process that writes."""
        return bool(self._process.is_main_process)

    def outcome(self, *, dry: bool = False) -> AdapterTrained | None:
        """Return how it ended; `refused` is a verdict on the data or the request, `failed` may pass.

        None in a process that does not write.

        `dry`: stops before the first step; what could be trained is then `refused` with that as its reason.
        """
        request = self._folder.request
        try:
            return self._train_and_publish(dry)
        except Refused as refused:
            return self._make_outcome(request, "refused", str(refused), counts=refused.counts, metrics=refused.figures)
        except TrainingRefused as refused:
            return self._make_outcome(request, "refused", str(refused))
        except RatchetError as error:
            return self._make_outcome(request, "failed", str(error))

    def _train_and_publish(self, dry: bool) -> AdapterTrained | None:
        began = time.monotonic()
        spread = is_spread(self._settings)
        choices = self._choices()
        self._emit({"stage": "reading"})
        selection = self._selection(choices)
        self._emit({"stage": "selected", "counts": selection.counts})
        if faults := list(data_faults(selection, choices.limits)):
            raise Refused("; ".join(faults), selection)
        self._emit({"stage": "loading"})
        inputs = self._inputs(choices, selection, spread=spread)
        inputs, selection, match = self._match(inputs, choices, selection)
        inputs, selection, doubts = self._leave_out_doubtful(inputs, selection)
        if dry:
            raise Refused(NOTHING_AGAINST_IT, selection, match)
        reports = StepReports(self._emit, match.gap if match else None)
        callbacks = (
            reports,
            RunAwayStops(choices.stops),
            Checkpoints(self._settings.trainer_checkpoint_every_s),
            *([FreeThreads(self._threads)] if self._threads else []),
        )
        trainer = choices.algorithm.trainer(replace(inputs, callbacks=callbacks), choices.hyperparameters)
        reports.follow(plan_of(trainer))
        if self.writes:
            attach(trainer, self._settings, choices.request, self._warn)
        looks = look_at_held_out(trainer, inputs, self._emit)
        try:
            self._train(trainer)
        except RanAway as reason:
            raise Refused(str(reason), selection, match) from reason
        held_out = looks.result if looks else None
        if held_out is not None:
            if not held_out.is_better:
                raise Refused(held_out.no_gain, selection, match)
            restore_best(trainer, inputs.policy, held_out)
        if not self.writes:
            return None
        steps = curve(trainer.state.log_history)
        described = report(choices, selection, match, trainer, inputs, steps, held_out, doubts)
        finished = Finished(
            choices,
            selection,
            described,
            metrics_of(described, time.monotonic() - began, self._progress.time_left_told),
            inputs_written_at(self._folder.held_out),
            self._now(),
        )
        return publish(finished, inputs.policy, self._folder.path / "adapter", self._settings.adapters_dir)

    def _leave_out_doubtful(
        self, inputs: TrainerInputs, selection: Selection
    ) -> tuple[TrainerInputs, Selection, list[Doubt]]:
        """Return what is left without the demonstrations that look wrong to the parent, and which those are."""
        if not inputs.demonstrations:
            return inputs, selection, []
        shown = [*inputs.demonstrations, *inputs.held_out]
        self._emit({"stage": "comparing"})
        logps = token_logps(inputs.policy, shown, inputs.temperature, self._shares("comparing"))
        losses = [-float(of_one.sum()) for of_one in logps]
        (found,) = broadcast_object_list([doubtful(losses)])
        left = [sample for number, sample in enumerate(shown) if number not in found]
        demonstrations = [*selection.demonstrations.taught, *selection.demonstrations.held_out]
        selection = selection.without_doubtful([demonstrations[number] for number in found])
        taught = len(selection.demonstrations.taught)
        inputs = replace(inputs, demonstrations=left[:taught], held_out=left[taught:])
        return inputs, selection, [Doubt(demonstrations[number].task_id, losses[number]) for number in found]

    def _train(self, trainer: PolicyTrainer) -> None:
        """Train from the newest checkpoint on, if there is one."""
        if self.writes:
            remove_broken(self._folder.checkpoints)
        self._process.wait_for_everyone()
        checkpoint = newest_checkpoint(self._folder.checkpoints)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        failpoint.reach("trained")

    @property
    def _agent_id(self) -> str:
        return self._folder.request.agent_id

    def _choices(self) -> Choices:
        settings, request = self._settings, self._folder.request
        agent = self._adapters.read().agent(request.agent_id)
        name = settings.model_of(request.agent_id)
        base = identify(model_folder(name, settings.trainer_model_revision), name)
        sources: list[JsonValue] = list(settings.demonstrations)
        defaults = {
            "demonstrations": sources,
            "replay_share": settings.replay_share,
            **settings.trainer_hyperparameters,
        }
        request = self._folder.resolved or resolve(request, agent, defaults)
        return make_choices(request, agent, BaseModelIdentity(name=base.name, revision=base.revision))

    def _selection(self, choices: Choices) -> Selection:
        """Read the logs, and fix how far: the other processes, and a process that resumes the run, read the same."""
        if not self.writes:
            self._process.wait_for_everyone()
            return self._select(self._scan(choices, self._folder.resolved or choices.request)[0], choices)
        try:
            if not self._folder.held_out.exists():
                at = self._now()
                gates = asked_by_the_gate(self._settings.adapters_dir, self._agent_id)
                write_inputs(self._folder.untaught, gates, at)
                write_inputs(self._folder.held_out, held_out_inputs(self._settings.adapters_dir, self._agent_id), at)
            scan, feedback_end = self._scan(choices, choices.request)
            end = max((part.end for part in scan.ranges if part.log == INTERACTIONS), default=choices.request.since)
            self._folder.resolved = choices.request.model_copy(update={"until": end, "feedback_until": feedback_end})
            failpoint.reach("window-fixed")
        finally:
            self._process.wait_for_everyone()
        return self._select(scan, choices)

    def _select(self, scan: Scan, choices: Choices) -> Selection:
        """Select samples, or demonstrations in their place where there are enough."""
        selection, found, least = select(scan, choices.data), scan.demonstrations, choices.limits.min_groups
        alone = selection.with_held_out(choices.hyperparameters.holds_out, least)
        if len(found.places) < least:
            return alone
        folder = model_folder(self._settings.model_of(self._agent_id), self._settings.trainer_model_revision)
        answer_ids, longest = answers_of(folder)
        untaught = read_inputs(self._folder.untaught)
        shown = load_demonstrations(self._settings.logs_dir, found, answer_ids, untaught, longest=longest)
        if len(shown.taught) < least:
            return alone
        return selection.with_demonstrations(shown, with_samples=choices.hyperparameters.mixes != "only")

    def _scan(self, choices: Choices, request: TrainRequest) -> tuple[Scan, int]:
        """Return what the logs hold, and to which byte the feedback was read."""
        logs, seals = self._settings.logs_dir, self._settings.adapters_dir / SEALS
        feedback = read_feedback(logs, request.agent_id, request.feedback_until, read_seals(seals, FEEDBACK))
        data = replace(choices.data, held_out=read_inputs(self._folder.held_out))
        book = read_seals(seals, INTERACTIONS)
        scan = JournalScan(logs, data, feedback, seals=book, on_share=self._shares("reading"))
        return scan.read(request.since, request.until), feedback.end

    def _inputs(self, choices: Choices, selection: Selection, *, spread: bool) -> TrainerInputs:
        settings, request, knobs = self._settings, choices.request, choices.hyperparameters
        samples = load_samples(settings.logs_dir, selection.groups, on_share=self._shares("loading"))
        shown = selection.demonstrations.taught
        held_out = [one.sample(-1 - number) for number, one in enumerate(selection.demonstrations.held_out)]
        held_out += load_samples(settings.logs_dir, selection.held_out)
        self._emit({"stage": "loading-model"})
        language_model = load_language_model(
            settings.model_of(request.agent_id),
            settings.trainer_model_revision,
            dtype=settings.trainer_dtype,
            device=str(self._process.device),
            threads=settings.trainer_threads,
            attention=settings.trainer_attention,
            weights=settings.trainer_weights,
            spread_over=self._process.num_processes if spread else 1,
        )
        if (
            settings.trainer_threads is None
            and language_model.device.type == "cpu"
            and self._process.num_processes == 1
        ):
            self._threads = CpuThreads(language_model.model.num_parameters(), torch.set_num_threads)
        of_size = default_learning_rate(language_model.model.num_parameters())
        share = DEMONSTRATION_RATE if shown and not samples else 1.0
        parent = parent_folder(settings.adapters_dir, request.agent_id, choices.parent)
        return TrainerInputs(
            policy=make_policy(language_model, parent, knobs, seed=request.seed, max_rank=settings.adapter_max_rank),
            tokenizer=language_model.tokenizer,
            samples=samples,
            demonstrations=[one.sample(len(selection.groups) + number) for number, one in enumerate(shown)],
            held_out=held_out,
            folder=self._folder.checkpoints,
            seed=request.seed,
            temperature=selection.temperature,
            learning_rate=knobs.learning_rate or share * of_size,
            on_gpu=self._on_gpu,
            processes=self._process.num_processes,
            grammars=_grammars_for([*samples, *held_out], language_model),
        )

    def _match(
        self, inputs: TrainerInputs, choices: Choices, selection: Selection
    ) -> tuple[TrainerInputs, Selection, PolicyMatch | None]:
        """Compare the samples with the parent, and leave out versions that are too different.

        The match is None where no samples teach. Raises Refused where parent and log do not belong together, or too
        little is left.
        """
        if not inputs.samples:
            return inputs, selection, None
        count = len(inputs.samples)
        chosen = sorted({index * count // MATCH_SAMPLES for index in range(MATCH_SAMPLES)})
        samples = [inputs.samples[number] for number in chosen]
        self._emit({"stage": "comparing"})
        ratios = sample_ratios(
            inputs.policy,
            samples,
            temperature=inputs.temperature,
            on_share=self._shares("comparing"),
            grammars=inputs.grammars,
        )
        (strangers,) = broadcast_object_list([too_different(ratios, choices.parent, choices.limits)])
        left = selection.without(strangers)
        if faults := list(data_faults(left, choices.limits)):
            raise Refused("; ".join([*faults, *version_faults(strangers)]), left)
        kept = [sample for sample in inputs.samples if sample.version not in strangers]
        held_out = [sample for sample in inputs.held_out if sample.version not in strangers]
        match = match_of([ratio for ratio in ratios if ratio.version not in strangers], choices.parent)
        if faults := list(policy_faults(match, choices.limits)):
            raise Refused("; ".join(faults), left, match)
        return replace(inputs, samples=kept, held_out=held_out), left, match

    def _warn(self, what: str) -> None:
        self._emit({"stage": "training", "warning": what})

    def _shares(self, stage: str) -> Callable[[float], None]:
        emit = ShareReports(self._emit)

        def on_share(share: float) -> None:
            if self._threads:
                self._threads.look()
            emit({"stage": stage, "share": share})

        return on_share

    def _make_outcome(
        self, request: TrainRequest, status: Literal["refused", "failed"], reason: str, **account: Any
    ) -> AdapterTrained:
        return AdapterTrained(
            request_id=request.request_id,
            agent_id=request.agent_id,
            status=status,
            metadata=Metadata(timestamp=self._now(), source="trainer"),
            parent_version=(self._folder.resolved or request).parent_version,
            reason=reason,
            **account,
        )


def _grammars_for(samples: Sequence[TrainingSample], language_model: LanguageModel) -> Grammars | None:
    """Return None where no sample was held to one."""
    if not any(sample.grammars for sample in samples):
        return None
    vocabulary = language_model.model.config.get_text_config().vocab_size
    return Grammars(language_model.tokenizer, vocabulary, language_model.end_ids)
