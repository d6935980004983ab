"""`ratchet up`: a broker, the models and the services on this machine, supervised, and where everything is."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ratchet.bus.amqp.short_connection import without_password
from ratchet.bus.topology import RESULTS, TASKS
from ratchet.logs.names import INTERACTIONS, active_path
from services.cli.fleet.folder import FleetFolder, FleetRecord
from services.cli.fleet.model_server import LOADING_S, URL
from services.cli.fleet.options import JUDGE_MODEL, SMALL_MODEL, FleetOptions
from services.cli.fleet.start import start_fleet
from services.cli.terminal import out, say

READY_S = 180.0


def up(
    ctx: typer.Context,
    agents: Annotated[str, typer.Option(envvar="RATCHET_AGENTS", help="Names of the agents, by comma.")] = "small",
    replicas: Annotated[int, typer.Option(help="Processes of each agent.")] = 1,
    engine: Annotated[
        str,
        typer.Option(
            envvar="RATCHET_AGENT_ENGINE", help="What agents generate with: transformers, vllm, echo or scripted."
        ),
    ] = "transformers",
    scorer: Annotated[
        str, typer.Option(envvar="RATCHET_SCORER", help="Who scores: likelihood, verifier:exact, judge:absolute …")
    ] = "likelihood",
    model: Annotated[
        str, typer.Option(envvar="RATCHET_AGENT_MODEL", help="The agents' model: a folder, a hub name, or smollm2.")
    ] = SMALL_MODEL,
    judge_model: Annotated[
        str, typer.Option(envvar="RATCHET_SCORER_LIKELIHOOD_MODEL", help="The bigger model of the likelihood scorer.")
    ] = "models/judge",
    port_base: Annotated[
        int,
        typer.Option(
            help="HTTP: orchestrator here, agents from +10 on, scorer at +50, auditor at +51, runner at +55, "
            "trainer at +60, manager at +65."
        ),
    ] = 8700,
    amqp_port: Annotated[int, typer.Option(help="AMQP port of the broker it starts.")] = 5673,
    auditor: Annotated[
        str, typer.Option(envvar="RATCHET_AUDITOR", help="A second scorer that audits; nobody if not given.")
    ] = "",
    trainer: Annotated[bool, typer.Option(help="With a trainer; echo and scripted never have one.")] = True,
    external_agents: Annotated[
        str, typer.Option(help="Names, by comma, of agents whose program is somebody else's: no process for them.")
    ] = "",
    no_scorer: Annotated[
        bool,
        typer.Option("--no-scorer", envvar="RATCHET_EXTERNAL_SCORER", help="The scorer is somebody else's program."),
    ] = False,
    programs: Annotated[
        str,
        typer.Option(
            envvar="RATCHET_PROGRAMS",
            help="File (TOML) of programs that answer agents' tasks, with a runner for them; none if not given.",
        ),
    ] = "",
    manager: Annotated[bool, typer.Option(help="With a manager, which takes jobs: `ratchet jobs`.")] = False,
    big: Annotated[
        str,
        typer.Option(
            envvar="RATCHET_BIG_MODEL",
            help="A bigger model that answers in place of the first agent until that one is proved to do as well: a "
            "folder, a hub name, or the URL of an OpenAI-compatible server; none if not given.",
        ),
    ] = "",
    vllm_args: Annotated[
        str, typer.Option(envvar="RATCHET_VLLM_ARGS", help="More arguments for the vLLM server that it starts.")
    ] = "",
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to wait until all are ready: 180; 1800 where it starts a vLLM.", show_default=False),
    ] = None,
) -> None:
    """With RATCHET_AMQP_URL set that broker is used; else a private RabbitMQ is started in .ratchet/rabbitmq.
    With --external-agents or --no-scorer it sends their work to programs of yours, and starts all but these.
    With --engine vllm and no RATCHET_AGENT_VLLM_URL it starts a vLLM server beside each agent, too.
    A real model: `ratchet models fetch smollm2`, then `ratchet up --model smollm2 --scorer verifier:json`.
    """
    external = _names(external_agents)
    own_vllm = engine == "vllm" and URL not in os.environ
    options = FleetOptions(
        agents=tuple(name for name in _names(agents) if name not in external),
        replicas=replicas,
        engine=engine,
        scorer=scorer,
        model=model,
        judge_model=judge_model,
        port_base=port_base,
        amqp_port=amqp_port,
        trainer=trainer,
        auditor=auditor,
        external_agents=external,
        no_scorer=no_scorer,
        programs=str(Path(programs).absolute()) if programs else "",
        manager=manager,
        own_vllm=own_vllm,
        vllm_args=vllm_args if own_vllm else "",
        big="" if engine == "openai" else big,
    )
    if options.known_models and "likelihood" in scorer and not no_scorer and judge_model == JUDGE_MODEL:
        say(f"warning: {JUDGE_MODEL} can judge nothing but the demo's task: name a scorer, such as verifier:json")
    wait_s = timeout or (LOADING_S if own_vllm else READY_S)
    record = start_fleet(options, os.environ.get("RATCHET_AMQP_URL"), wait_s, insist=_any_typed(ctx))
    _say_where(record, options)


def _names(listed: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))


def _any_typed(ctx: typer.Context) -> bool:
    """Tell whether an option was given on the command line, rather than by the environment or by default."""
    sources = (ctx.get_parameter_source(name) for name in ctx.params if name != "timeout")
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _say_where(record: FleetRecord, options: FleetOptions) -> None:
    out.print("[bold green]The fleet is up.[/bold green]")
    tasks, results = record.namespace + TASKS, record.namespace + RESULTS
    lines = [("broker", f"{without_password(record.amqp_url)}  (queue of tasks: {tasks}, of results: {results})")]
    lines += [(p.name, f"http://127.0.0.1:{p.http_port}") for p in record.programs if p.http_port]
    lines += [(who, "yours to start: docs/messages.md") for who in record.options.external]
    lines += [("the page", f"{place}/") for name, place in lines if name == "orchestrator"]
    lines += [("log of answers", str(active_path(record.logs_dir, INTERACTIONS)))]
    lines += [("process logs", str(record.programs[0].log.parent))]
    lines += [("from elsewhere", f". {shlex.quote(str(FleetFolder.here().settings_file))}")]
    for name, place in lines:
        out.print(f"  {name:<16} {place}", markup=False)
    example = "sort: gbaec" if options.model == SMALL_MODEL else "your task"
    out.print(f'\nNext:  ratchet submit "{example}"    ratchet watch    ratchet log tail    ratchet down', markup=False)
