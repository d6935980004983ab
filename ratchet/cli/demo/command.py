"""`ratchet demo`: the whole loop on this machine, from a mediocre model to a better one that is proved to be."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ratchet.cli.demo.held_out import HeldOutPlan
from ratchet.cli.demo.loop import LoopPlan
from ratchet.cli.demo.narrator import Narrator
from ratchet.cli.demo.performance import Performance, write_golden_set
from ratchet.cli.demo.place import QUICK, DemoPlace, delete_queues, only
from ratchet.cli.demo.story import Story
from ratchet.cli.demo.story_view import render_story
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.fleet.options import FleetOptions
from ratchet.cli.fleet.start import start_fleet, stop_fleet
from ratchet.cli.terminal import ExitCode, err, out, print_json, say

AGENT = "small"


def demo(
    tasks: Annotated[int, typer.Option(min=2, max=5000, help="Held-out tasks, answered before and after.")] = 200,
    samples: Annotated[int, typer.Option(min=2, max=64, help="Answers sampled for each task; the best wins.")] = 8,
    turns: Annotated[int, typer.Option(min=1, max=20, help="How often to train, and prove the new adapter.")] = 2,
    groups: Annotated[int, typer.Option(min=8, max=5000, help="Tasks of users to learn from, each turn.")] = 128,
    no_turn_after: Annotated[
        float, typer.Option(help="Seconds from the start after which no further turn begins; the first always does.")
    ] = 180.0,
    seed: Annotated[int, typer.Option(help="Which tasks are drawn.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fleet running.")] = False,
    port_base: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 8700,
    amqp_port: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 5673,
    timeout: Annotated[float, typer.Option(help="Seconds to wait: for the fleet, an answer, an adapter.")] = 180.0,
    json: Annotated[bool, typer.Option("--json", help="The story as JSON.")] = False,
) -> None:
    """Show the loop: answer, score, learn from the log, prove it on live traffic, promote; and throw a bad adapter out.

    A fleet of its own in .ratchet/demo, made anew each time. Exit code 1 if a task was lost, nothing was promoted, the
    bad adapter was not rolled back, or the gain on held-out tasks is not significant.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its fleet is stopped then, as with Ctrl-C
    options = FleetOptions(agents=(AGENT,), port_base=port_base, amqp_port=amqp_port)
    held_out = HeldOutPlan(tasks, samples, seed, timeout)
    plan = LoopPlan(turns, groups, no_turn_after, patience_s=timeout, seed=seed)
    narrator = Narrator(err)
    with _fleet_of_its_own(options, held_out, narrator, keep=keep) as place:
        story = _perform(place, held_out, plan, narrator, as_json=json)
        _print(story, as_json=json)
    _say_next(place, stays=keep)
    if story.faults:
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _fleet_of_its_own(
    options: FleetOptions, held_out: HeldOutPlan, narrator: Narrator, *, keep: bool
) -> Iterator[DemoPlace]:
    """Up within the block; an earlier demo's fleet is stopped first. Down after it, unless it is kept."""
    place = DemoPlace.here()
    amqp_url = os.environ.get("RATCHET_AMQP_URL")
    namespace = f"demo-{uuid.uuid4().hex[:8]}." if amqp_url else ""
    with only(place.settings(namespace) | QUICK):
        stop_fleet()
        place.make_anew(namespace)
        write_golden_set(place, AGENT, held_out)
        narrator.heading("The models and the fleet")
        start_fleet(options, amqp_url, held_out.stall_s, insist=False)
        narrator.say(f"Watch it learn: http://127.0.0.1:{options.port_base}/")
        try:
            yield place
        finally:
            if not keep:
                stop_fleet()
                _leave_nothing_on(amqp_url, namespace)


def _leave_nothing_on(amqp_url: str | None, namespace: str) -> None:
    """A broker that is not the demo's own gets its queues off again."""
    if amqp_url is not None:
        delete_queues(amqp_url, namespace, (AGENT,))


def _perform(place: DemoPlace, held_out: HeldOutPlan, plan: LoopPlan, narrator: Narrator, *, as_json: bool) -> Story:
    tables = err if as_json else out
    show = lambda table: tables.print(table, soft_wrap=False)  # noqa: E731
    return Performance(FleetAccess.here(), place, AGENT, held_out, plan, narrator, show).perform()


def _print(story: Story, *, as_json: bool) -> None:
    if as_json:
        print_json(story.as_dict())
    else:
        out.print(render_story(story), soft_wrap=False)


def _say_next(place: DemoPlace, *, stays: bool) -> None:
    say(f"\nThe report page: {place.report}")
    say(f"To look closer:  . {place.settings_file}    then  ratchet adapters list    ratchet experiment show")
    if stays:
        say('The fleet is still up; there:  ratchet submit "sort: gbaec"    ratchet watch    ratchet down')
    else:
        say('The fleet is down again. A fleet of your own:  ratchet up    ratchet submit "sort: gbaec"')
