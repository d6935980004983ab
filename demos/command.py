"""`ratchet demo`: the whole loop on this machine, from a mediocre model to a better one that is proved to be."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Annotated, Any

import typer

from demos.cascade import demo as cascade_demo
from demos.demo import Demo
from demos.mail import demo as mail_demo
from demos.performance import AGENT, show_demo
from demos.real import demo as real_demo
from demos.sort import demo as sort_demo
from demos.tools import demo as tools_demo
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace, require_place
from services.cli.terminal import ExitCode, UsageError, say


def demo(
    real: Annotated[
        bool, typer.Option("--real", help="With a real language model, which is fetched: orders and dates to JSON.")
    ] = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="With a tiny model that has to use tools, over several turns.")
    ] = False,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="With a bigger model that answers all, until the small one is proved to.")
    ] = False,
    agent: Annotated[
        bool, typer.Option("--agent", help="With the same real model as an agent with tools, in sandboxes.")
    ] = False,
    references: Annotated[
        bool, typer.Option("--references", help="With --real: the references of users' tasks teach, too.")
    ] = False,
    structured: Annotated[
        bool, typer.Option("--structured", help="With --real: each answer is held to its JSON Schema.")
    ] = False,
    sandboxed: Annotated[
        bool,
        typer.Option("--sandboxed", help="With --tools: its agent is a program of the runner, in sandboxes."),
    ] = False,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=2, max=5000, help="Held-out tasks, answered before and after: 200; --real 64, --agent 48, --tools 150."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=64,
            help="Answers to a task; the best wins: 8; --real 4, and 5 to learn from; --agent 2, and 4; "
            "--tools 2, and 8.",
        ),
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option(
            min=1, max=20, help="How often to train, and prove the new adapter: 2 at most; --agent 1, --tools 3."
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            min=8, max=5000, help="Tasks of users to learn from, each turn: 128, with --real 160, --agent 96."
        ),
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
        typer.Option(help="Seconds to wait: for the fleet, an answer, an adapter: 180; --real, --agent 600."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The story as JSON.")] = False,
) -> None:
    """A fleet of its own in .ratchet/demo, made anew each time. Exit code 1 if a task was lost, nothing was promoted,
    the bad adapter was not rolled back, or the gain on held-out tasks is not significant.

    --real: a language model of 135 million parameters (fetched once, 93 MB) turns mail orders into JSON and dates into
    ISO; a fleet in .ratchet/demo-real, some twenty minutes on two cores. Exit code 1 also if less than 0.75 of its
    answers to held-out tasks are exactly right in the end. Nothing is thrown out in it. It learns from its own answers;
    with --references from the right answers that come with users' tasks. With --structured every answer is held to its
    JSON Schema; exit code 1 also if one that was not cut is not as its schema has it.

    --tools: a model of 0.2 million parameters, made here, has to read files, follow pointers, add and write with tools
    before it answers; recorded token for token, it learns from whole conversations, turn after turn until 0.85 of its
    answers to users have full marks. A fleet in .ratchet/demo-tools, some minutes on two cores. Exit code 1 also if
    less than 0.80 of its held-out tasks are done in the end, more than 0.02 of them where its tools bring nothing, or
    what was trained on is not what was sampled.

    --agent: the same language model as an agent with tools, over several turns. It reads a mail, reads the rule that
    the mail names, and writes the mail's date into the file that the rule names; each rollout in a sandbox of its own,
    scored by hidden tests of what it left. A fleet in .ratchet/demo-agent, some half an hour on two cores. Exit code 1
    also if less than 0.40 of its held-out tasks are done in the end, a rollout of them was outside of a sandbox, or
    what was trained on is not what was sampled.

    --cascade: a bigger model answers all tasks at first; the small one answers beside it, unseen, learns, and takes
    over a share that rises by proof. A fleet in .ratchet/demo-cascade. Exit code 1 also if the small model does not
    come to answer more than a fifth of the tasks, if users got fewer right answers meanwhile, or paid no less.

    --tools --sandboxed: the same agent as a program of the runner, each rollout in a sandbox of its own, its tools on
    real files there, scored by hidden tests of what it left. Some ten minutes a turn on two cores.
    """
    if real + tools + cascade + agent > 1:
        raise UsageError("give one of --real, --tools, --cascade and --agent")
    if sandboxed and not tools:
        raise UsageError("--sandboxed is for --tools")
    if (references or structured) and not real:
        raise UsageError("--references and --structured are for --real")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its fleet is stopped then, as with Ctrl-C
    given = {"tasks": tasks, "samples": samples, "turns": turns, "groups": groups}
    changes: dict[str, Any] = given | {"no_turn_after": no_turn_after, "timeout": timeout}
    asked = ((real, real_demo), (agent, mail_demo), (tools, tools_demo), (cascade, cascade_demo), (True, sort_demo))
    usual = next(module.SIZES for is_asked, module in asked if is_asked)
    sizes = replace(usual, **{name: value for name, value in changes.items() if value is not None})
    shown: Demo[Any]
    if real:
        shown = real_demo.RealDemo(sizes=sizes, seed=seed, references=references, structured=structured)
    elif tools:
        shown = tools_demo.ToolsDemo(sizes=sizes, seed=seed, sandboxed=sandboxed)
    elif agent:
        shown = mail_demo.MailDemo(sizes=sizes, seed=seed)
    elif cascade:
        shown = cascade_demo.CascadeDemo(sizes=sizes, seed=seed)
    else:
        shown = sort_demo.SortDemo(sizes=sizes, seed=seed)
    options = FleetOptions(agents=(AGENT,), port_base=port_base, amqp_port=amqp_port)
    place = FleetPlace.here(shown.folder)
    require_place(place, options)
    story = show_demo(shown, place, options, keep=keep, as_json=json)
    say(f"\nThe report page: {place.report}")
    say(f"To look closer:  . {place.settings_file}    then  ratchet adapters list    ratchet experiment show")
    if keep:
        say(f"The fleet is still up; there:  {shown.next_command}    ratchet watch    ratchet down")
    else:
        say(f"The fleet is down again. A fleet of your own:  ratchet up    {shown.next_command}")
    if story.faults:
        raise typer.Exit(ExitCode.FAILED)
