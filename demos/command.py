"""`ratchet demo`: the whole loop on this machine, from a mediocre model to a better one that is proved to be."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer

from demos.demo_fleet import run_name
from demos.held_out import HeldOutPlan
from demos.loop import LoopPlan
from demos.performance import Performance, golden_set, write_golden_set
from demos.real import plan as real_plan
from demos.real.page import RESULT
from demos.real.performance import RealPerformance
from demos.real.plan import RealPlan
from demos.real.time_left import TimeLeft
from demos.real.view import render_real_story
from demos.story import Story
from demos.story_view import render_story
from demos.tools import in_sandboxes
from demos.tools import plan as tool_plan
from demos.tools.performance import ToolPerformance
from demos.tools.plan import ToolPlan
from demos.tools.tool_agent import queue_of, tool_agent
from demos.tools.view import render_tool_story
from ratchet.models.fetch import fetch
from ratchet.models.known import KNOWN
from ratchet.service.settings import FleetSettings
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace, fleet_of_its_own, require_place
from services.cli.models import make_models
from services.cli.narrator import Narrator
from services.cli.terminal import ExitCode, UsageError, err, out, print_json, say

AGENT = "small"
REAL_GROUP = 5
TOOLS_GROUP = 8
TRAINING_S = 3600.0
"""Answers to a task to learn from; seconds that a training of the real model may take at most."""


QUICK = {
    "RATCHET_TRAIN_AFTER_GROUPS": "0",
    "RATCHET_EXPERIMENT_MAX_UNITS": "1000",
    "RATCHET_EXPERIMENT_MIN_AGE_S": "0",
}
"""What makes the loop quick on tasks of five letters; what a promotion must prove is as in any fleet."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the options are where they are not given: of the demo, and of the real one."""

    tasks: int
    samples: int
    turns: int
    groups: int
    no_turn_after: float
    timeout: float


QUICK_SIZES = Sizes(tasks=200, samples=8, turns=2, groups=128, no_turn_after=180.0, timeout=180.0)
REAL_SIZES = Sizes(tasks=64, samples=4, turns=2, groups=160, no_turn_after=540.0, timeout=600.0)
TOOLS_SIZES = Sizes(tasks=150, samples=2, turns=3, groups=128, no_turn_after=math.inf, timeout=180.0)


def demo(
    real: Annotated[
        bool, typer.Option("--real", help="With a real language model, which is fetched: orders and dates to JSON.")
    ] = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="With a tiny model that has to use tools, over several turns.")
    ] = False,
    references: Annotated[
        bool, typer.Option("--references", help="With --real: the references of users' tasks teach, too.")
    ] = False,
    sandboxed: Annotated[
        bool,
        typer.Option("--sandboxed", help="With --tools: its agent is a program of the runner, in sandboxes."),
    ] = False,
    tasks: Annotated[
        int | None,
        typer.Option(min=2, max=5000, help="Held-out tasks, answered before and after: 200; --real 64, --tools 150."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=2, max=64, help="Answers to a task; the best wins: 8; --real 4, and 5 to learn from; --tools 2, and 8."
        ),
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=20, help="How often to train, and prove the new adapter: 2 at most; --tools 3."),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(min=8, max=5000, help="Tasks of users to learn from, each turn: 128, with --real 160."),
    ] = None,
    no_turn_after: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which no further turn begins; the first always does: 180; --real 540, --tools none."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which tasks are drawn.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fleet running; of --tools, not its agent.")] = False,
    port_base: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 8700,
    amqp_port: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 5673,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to wait: for the fleet, an answer, an adapter: 180; --real 600."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The story as JSON.")] = False,
) -> None:
    """Show the loop: answer, score, learn from the log, prove it on live traffic, promote; and throw a bad adapter out.

    A fleet of its own in .ratchet/demo, made anew each time. Exit code 1 if a task was lost, nothing was promoted, the
    bad adapter was not rolled back, or the gain on held-out tasks is not significant.

    --real: a language model of 135 million parameters (fetched once, 93 MB) turns mail orders into JSON and dates into
    ISO; a fleet in .ratchet/demo-real, some twenty minutes on two cores. Exit code 1 also if less than 0.75 of its
    answers to held-out tasks are exactly right in the end. Nothing is thrown out in it. It learns from its own answers;
    with --references from the right answers that come with users' tasks.

    --tools: a model of 0.2 million parameters, made here, has to read files, follow pointers, add and write with tools
    before it answers; recorded token for token, it learns from whole conversations, turn after turn until 0.85 of its
    answers to users have full marks. A fleet in .ratchet/demo-tools, some minutes on two cores. Exit code 1 also if
    less than 0.80 of its held-out tasks are done in the end, more than 0.02 of them where its tools bring nothing, or
    what was trained on is not what was sampled.

    --tools --sandboxed: the same agent as a program of the runner, each rollout in a sandbox of its own, its tools on
    real files there, scored by hidden tests of what it left. Some ten minutes a turn on two cores.
    """
    if real and tools:
        raise UsageError("give either --real or --tools")
    if sandboxed and not tools:
        raise UsageError("--sandboxed is for --tools")
    if references and not real:
        raise UsageError("--references is for --real")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its fleet is stopped then, as with Ctrl-C
    counts = {"tasks": tasks, "samples": samples, "turns": turns, "groups": groups}
    given: dict[str, Any] = counts | {"no_turn_after": no_turn_after, "timeout": timeout}
    sizes = replace(
        REAL_SIZES if real else TOOLS_SIZES if tools else QUICK_SIZES,
        **{name: value for name, value in given.items() if value is not None},
    )
    options = FleetOptions(agents=(AGENT,), port_base=port_base, amqp_port=amqp_port)
    place = FleetPlace.here("demo-real" if real else "demo-tools" if tools else "demo")
    require_place(place, options)
    show = (
        partial(_real_demo, references=references)
        if real
        else partial(_tools_demo, sandboxed=sandboxed)
        if tools
        else _demo
    )
    show(place, sizes, options, seed, keep=keep, as_json=json)


def _demo(place: FleetPlace, sizes: Sizes, options: FleetOptions, seed: int, *, keep: bool, as_json: bool) -> None:
    held_out = HeldOutPlan(sizes.tasks, sizes.samples, seed, sizes.timeout)
    plan = LoopPlan(sizes.turns, sizes.groups, sizes.no_turn_after, patience_s=sizes.timeout, seed=seed)
    narrator = Narrator(err)
    with _fleet(place, options, QUICK, lambda _: golden_set(held_out), narrator, sizes.timeout, keep=keep):
        story = _perform(place, held_out, plan, narrator, as_json=as_json)
        _print(story, as_json=as_json)
    _say_next(place, 'ratchet submit "sort: gbaec"', stays=keep)
    if story.faults:
        raise typer.Exit(ExitCode.FAILED)


def _real_demo(
    place: FleetPlace, sizes: Sizes, options: FleetOptions, seed: int, *, references: bool, keep: bool, as_json: bool
) -> None:
    model, models = KNOWN[real_plan.MODEL], FleetSettings.read().models_dir
    fetch(model, models, say)
    plan = RealPlan(sizes.tasks, sizes.samples, REAL_GROUP, seed, sizes.timeout)
    stages = real_plan.stages(plan, sizes.turns, sizes.groups)
    left = TimeLeft(stages, time.monotonic, real_plan.further_turns(sizes.turns), sizes.no_turn_after)
    narrator = Narrator(err, left=left.seconds, quiet_s=20.0)
    loop_plan = LoopPlan(
        sizes.turns,
        sizes.groups,
        sizes.no_turn_after,
        patience_s=sizes.timeout,
        training_s=TRAINING_S,
        seed=seed,
    )
    options = replace(options, model=real_plan.MODEL, scorer="verifier:json")
    settings = real_plan.settings(seed, references=references) | {"RATCHET_MODELS_DIR": str(models)}
    with _fleet(place, options, settings, lambda _: plan.golden, narrator, sizes.timeout, keep=keep):
        story = RealPerformance(
            FleetAccess.here(), place, AGENT, plan, loop_plan, narrator, left, model.title.partition(":")[0]
        ).perform()
        if as_json:
            print_json(story.as_dict())
        else:
            out.print(render_real_story(story), soft_wrap=False)
    say(f"\nBefore and after, with a picture: {place.root / RESULT}")
    _say_next(place, "ratchet submit --file tasks.jsonl", stays=keep)
    if story.faults:
        raise typer.Exit(ExitCode.FAILED)


def _tools_demo(
    place: FleetPlace, sizes: Sizes, options: FleetOptions, seed: int, *, sandboxed: bool, keep: bool, as_json: bool
) -> None:
    run, models = run_name(), FleetSettings.read().models_dir

    def plan_for(namespace: str) -> ToolPlan:
        queue = None if sandboxed else namespace + queue_of(run)
        return ToolPlan(sizes.tasks, sizes.samples, TOOLS_GROUP, seed, sizes.timeout, queue)

    stages = tool_plan.stages(plan_for(""), sizes.turns, sizes.groups)
    left = TimeLeft(stages, time.monotonic, tool_plan.further_turns(sizes.turns), sizes.no_turn_after)
    narrator = Narrator(err, left=left.seconds)
    loop_plan = LoopPlan(sizes.turns, sizes.groups, sizes.no_turn_after, patience_s=sizes.timeout, seed=seed)
    narrator.heading("The model that uses tools, made once")
    make_models(models, narrator.say, only=tool_plan.MODEL)
    options = replace(options, model=str(models / tool_plan.MODEL), scorer="verifier:json")
    settings = tool_plan.settings(seed) | {"RATCHET_MODELS_DIR": str(models)}
    programs = None
    if sandboxed:
        programs = in_sandboxes.programs(AGENT)
        options = replace(options, scorer=in_sandboxes.SCORER, programs=str(place.root / in_sandboxes.PROGRAMS))
        settings |= in_sandboxes.settings(place.root)
    golden = lambda namespace: plan_for(namespace).golden  # noqa: E731
    with _fleet(place, options, settings, golden, narrator, sizes.timeout, keep=keep, programs=programs):
        access = FleetAccess.here()
        log = place.root / "log" / "tool-agent.log"
        with nullcontext() if sandboxed else tool_agent(access, AGENT, queue_of(run), log):
            plan = plan_for(access.namespace)
            story = ToolPerformance(access, place, AGENT, plan, loop_plan, narrator, left, run).perform()
        if as_json:
            print_json(story.as_dict())
        else:
            out.print(render_tool_story(story), soft_wrap=False)
    _say_next(place, "ratchet log show TASK", stays=keep)
    if keep:
        say("Its agent ended with this command: what you submit there is answered by the model alone, without tools.")
    if story.faults:
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _fleet(
    place: FleetPlace,
    options: FleetOptions,
    settings: Mapping[str, str],
    golden: Callable[[str], Sequence[Task]],
    narrator: Narrator,
    timeout_s: float,
    *,
    keep: bool,
    programs: str | None = None,
) -> Iterator[None]:
    """Run the demo's fleet. `golden`: what the gate asks, in a namespace; `programs`: the runner's file of them."""

    def prepare(namespace: str) -> None:
        write_golden_set(place, AGENT, golden(namespace))
        if programs is not None:
            (place.root / in_sandboxes.PROGRAMS).write_text(programs, encoding="utf-8")
        narrator.heading("The models and the fleet")

    with fleet_of_its_own(place, options, settings, timeout_s, prepare=prepare, keep=keep):
        narrator.say(f"Watch it learn: http://127.0.0.1:{options.port_base}/")
        yield


def _perform(place: FleetPlace, held_out: HeldOutPlan, plan: LoopPlan, narrator: Narrator, *, as_json: bool) -> Story:
    tables = err if as_json else out
    show = lambda table: tables.print(table, soft_wrap=False)  # noqa: E731
    return Performance(FleetAccess.here(), place, AGENT, held_out, plan, narrator, show).perform()


def _print(story: Story, *, as_json: bool) -> None:
    if as_json:
        print_json(story.as_dict())
    else:
        out.print(render_story(story), soft_wrap=False)


def _say_next(place: FleetPlace, example: str, *, stays: bool) -> None:
    say(f"\nThe report page: {place.report}")
    say(f"To look closer:  . {place.settings_file}    then  ratchet adapters list    ratchet experiment show")
    if stays:
        say(f"The fleet is still up; there:  {example}    ratchet watch    ratchet down")
    else:
        say(f"The fleet is down again. A fleet of your own:  ratchet up    {example}")
