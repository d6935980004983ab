"""`ratchet try`: what one training makes of your own tasks, before and after, on tasks that it did not see."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ratchet.adapters.evaluations import register_set
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.taught_logs import ANCHORS
from ratchet.models.fetch import fetch
from ratchet.models.known import KNOWN
from ratchet.service.errors import TimedOut
from ratchet.service.settings import FleetSettings
from schemas.messages.base import Metadata
from schemas.messages.training import TrainRequest
from schemas.messages.work import BASE_VERSION
from services.cli.eval.asking import Asking, Contestant, answers, score_apart
from services.cli.eval.results import worth
from services.cli.eval.task_set import SetTask, TaskSet, read_set
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import SMALL_MAX_TOKENS, SMALL_MODEL, FleetOptions
from services.cli.fleet.own_fleet import FleetPlace, fleet_of_its_own, require_place
from services.cli.narrator import Narrator
from services.cli.terminal import AsJson, CommandError, ExitCode, UsageError, err, out, print_json, say
from services.cli.train.run import OnInterrupt, TrainingHere
from services.cli.train.view import TrainView
from services.cli.trying.trial import (
    Grading,
    Trial,
    TrialReport,
    choose_max_tokens,
    choose_scorer,
    grading_of,
    plan_trial,
    render_trial,
)

AGENT = "small"
NEEDED_BYTES = 2 * 10**9
"""Room for logs, broker, checkpoints and an adapter."""
POLL_S = 0.5


def trying(
    file: Annotated[
        Path, typer.Option("--file", help='The tasks, one a line: {"input": "…", "reference": "the right answer"}.')
    ],
    model: Annotated[
        str, typer.Option(help="The model that is to learn: smollm2, a folder, or models/small, the toy model.")
    ] = "smollm2",
    scorer: Annotated[
        str | None,
        typer.Option(help="Who grades. If not given: verifier:json where all references are JSON, else normalised."),
    ] = None,
    held_out: Annotated[
        int | None, typer.Option(min=8, help="Tasks that measure and don't teach: a quarter, from 8 to 64.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=64, help="Answers to each of them.")] = 2,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of an answer: enough for the longest reference, at most 256.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which tasks are held out, and the training's.")] = 1,
    port_base: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 8700,
    amqp_port: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 5673,
    timeout: Annotated[float, typer.Option(help="Seconds in which something must come.")] = 600.0,
    json: AsJson = False,
) -> None:
    """It says which references the scorer can grade and which can teach, shows before and after with 95 % intervals and
    the time, and ends with the command that starts a fleet with these settings. Sixteen tasks to learn from and eight
    to measure are the least; a hundred are a good start. All happens on a fleet of its own in .ratchet/try, made anew
    each time and stopped at the end. Exit code 1 if nothing could be learned. More: docs/your-own-tasks.md.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its fleet is stopped then, as with Ctrl-C
    narrator, clock = Narrator(err), _Clock()
    tasks = read_set(file)
    chosen = choose_scorer(tasks.tasks, scorer)
    _require_model(model)
    with clock.part("grading references"):
        narrator.heading("What the scorer can grade")
        grading = _grade_references(chosen, tasks.tasks)
        trial = plan_trial(tasks.tasks, grading, held_out, seed)
    for sentence in grading.sentences():
        narrator.say(sentence)
    if tasks.twice:
        narrator.say(f"{tasks.twice} lines ask what another asks, and are left out")
    usual = SMALL_MAX_TOKENS if model == SMALL_MODEL else choose_max_tokens([one.task for one in tasks.tasks])
    tokens = max_tokens or usual
    options = FleetOptions(
        agents=(AGENT,), model=model, scorer=chosen, trainer=False, port_base=port_base, amqp_port=amqp_port
    )
    place = FleetPlace.here("try")
    _require_room(place.root)
    require_place(place, options)
    if model in KNOWN:
        fetch(KNOWN[model], FleetSettings.read().models_dir, say)
    with _fleet(place, options, tokens, narrator, clock, timeout):
        access = FleetAccess.here()
        asking = _Asking(access, tasks.name, trial, samples, timeout, narrator)
        register_set(place.adapters, AGENT, TaskSet(tasks.name, trial.held_out).registration(datetime.now(UTC)))
        with clock.part("measuring"):
            before = asking.measure(BASE_VERSION, f"{model} answers {len(trial.held_out)} held-out tasks")
        with clock.part("answering what teaches"):
            asking.teach()
        (place.adapters / AGENT / ANCHORS).unlink(missing_ok=True)  # no gate asks them here, so they may teach
        with clock.part("training"):
            outcome = _train(access, narrator, seed)
        after = None
        if outcome["status"] == "trained":
            with clock.part("loading and measuring again"):
                _await_loaded(RegistryStore.from_settings(FleetSettings.read()), outcome["adapter_version"], timeout)
                version = outcome["adapter_version"]
                after = asking.measure(version, f"{version} answers the same tasks")
    report = TrialReport(
        file, options, tokens, grading, trial, samples, before, after, outcome, clock.parts, place.settings_file
    )
    if json:
        print_json(report.as_dict())
    else:
        out.print(render_trial(report))
    if after is None:
        raise typer.Exit(ExitCode.FAILED)


class _Clock:
    """Seconds of each part, in order."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.parts[name] = time.monotonic() - began


def _require_model(model: str) -> None:
    """Raises UsageError for a model that is neither known nor there."""
    if model not in (*KNOWN, SMALL_MODEL) and not (Path(model) / "config.json").exists():
        known = ", ".join(KNOWN)
        raise UsageError(f"there is no model {model!r}: name {known}, {SMALL_MODEL}, or a folder with a config.json")


def _require_room(folder: Path) -> None:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if (free := shutil.disk_usage(there).free) < NEEDED_BYTES:
        raise CommandError(
            f"no room in {there}: {free / 1e9:.1f} GB are free and {NEEDED_BYTES / 1e9:.0f} GB are needed; make "
            "room, or name a folder on another disk (RATCHET_STATE_DIR)"
        )


def _grade_references(scorer: str, tasks: Sequence[SetTask]) -> Grading:
    """Score each reference as the only answer. Raises CommandError."""
    given = {
        one.sha256: (one.task, [{"text": one.task.reference, "finish_reason": "stop"}])
        for one in tasks
        if one.task.reference is not None
    }
    identity, scores = score_apart(scorer, given)
    return grading_of(scorer, tasks, identity["grades_references"], scores)


def _settings(max_tokens: int) -> dict[str, str]:
    return {
        "RATCHET_MODELS_DIR": str(FleetSettings.read().models_dir.absolute()),
        "RATCHET_MAX_TOKENS": str(max_tokens),
        "RATCHET_TRAIN_AFTER_GROUPS": "0",
        "RATCHET_GOLDEN_FROM_TRAFFIC": "false",
        "RATCHET_REPLAY_SHARE": "0",  # the held-out part measures, so none is kept for a replay
    }


@contextmanager
def _fleet(
    place: FleetPlace, options: FleetOptions, max_tokens: int, narrator: Narrator, clock: _Clock, timeout_s: float
) -> Iterator[None]:
    narrator.heading("The fleet")
    with ExitStack() as stack:
        with clock.part("starting the fleet"):
            stack.enter_context(fleet_of_its_own(place, options, _settings(max_tokens), timeout_s))
        yield


class _Asking:
    """Asks the fleet: held-out tasks as an evaluation, which teaches nothing, and the others as a user."""

    def __init__(
        self, access: FleetAccess, name: str, trial: Trial, samples: int, timeout_s: float, narrator: Narrator
    ) -> None:
        self._access = access
        self._trial = trial
        self._asking = Asking(f"try-{name[:40]}", AGENT, samples, timeout_s)
        self._timeout_s = timeout_s
        self._narrator = narrator

    def measure(self, version: str, what: str) -> dict[str, list[float]]:
        """Return by task the worth of each answer. Raises TimedOut, BusError, JournalError."""
        make = [partial(self._asking.task, one, Contestant(version), n) for n, one in enumerate(self._trial.held_out)]
        by_id = {made().task_id: made for made in make}
        self._narrator.heading(what)
        with self._narrator.counting(len(make)) as advance, self._access.client(stall_s=self._timeout_s) as fleet:
            found = answers(fleet, self._access.logs_dir, by_id, self._timeout_s, advance, lambda _: None)
        worths = {task_id: [worth(row.score, row.score_status) for row in rows] for task_id, rows in found.items()}
        return {
            one.sha256: [value for value in worths[task_id] if value is not None]
            for one, task_id in zip(self._trial.held_out, by_id, strict=True)
        }

    def teach(self) -> None:
        """Raises TimedOut, BusError."""
        about = Metadata(timestamp=datetime.now(UTC), source="ratchet try")
        given = {"agent_id": AGENT, "samples": self._trial.samples, "metadata": about}
        tasks = [one.task.model_copy(update=given) for one in self._trial.taught]
        each = "once" if self._trial.samples == 1 else f"{self._trial.samples} times"
        self._narrator.heading(f"{len(tasks)} tasks that teach are answered, each {each}")
        with self._narrator.counting(len(tasks)) as advance, self._access.client(stall_s=self._timeout_s) as fleet:
            for _ in fleet.batch(tasks):
                advance()


def _train(access: FleetAccess, narrator: Narrator, seed: int) -> Any:
    """The outcome of one training with the product's own choices. Ctrl-C cancels it."""
    narrator.heading("One training")
    now = datetime.now(UTC)
    about = Metadata(timestamp=now, source="ratchet try")
    request = TrainRequest(request_id=f"try-{now:%Y%m%dT%H%M%S}", agent_id=AGENT, metadata=about, seed=seed)
    with TrainView(err) as view:
        return TrainingHere(request, access, view.show_event, lambda: OnInterrupt.CANCEL, "ratchet try").outcome()


def _await_loaded(store: RegistryStore, version: str, timeout_s: float) -> None:
    """Returns once the fleet answers with the version. Raises CommandError where its gate refuses it, TimedOut."""
    deadline = time.monotonic() + timeout_s
    while version not in (adapters := store.read().agent(AGENT)).in_traffic:
        entry = adapters.versions.get(version)
        if entry is not None and entry.state.value == "rejected":
            raise CommandError(f"the fleet refused {version}: `ratchet adapters show {version}` says why")
        if time.monotonic() > deadline:
            raise TimedOut(f"{version} was not loaded within {timeout_s:.0f} s: see .ratchet/try/log")
        time.sleep(POLL_S)
