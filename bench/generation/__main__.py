"""`python -m bench.generation`: tokens/s of the fleet's agent over RabbitMQ, over those of its bare engine.

The two take turns, so that a machine that gets busier hurts both. One agent, with its engine in a process of its own if
it takes one batch at a time; the bare engine runs in this process.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import uvloop

from bench.generation import real
from bench.generation.bare import BareRate, bare_engine
from bench.generation.fleet import Client, agent_process
from bench.generation.workload import Rate, Workload, workloads
from bench.machine import machine
from services.agent.settings import AgentSettings
from services.cli.fleet.local_broker import LocalBroker

OUT = Path(__file__).parents[1] / "out" / "generation.json"
BAR = 0.9


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.generation", description=__doc__)
    parser.add_argument("--rounds", type=int, help="rounds; medians over them are printed (5, of --real 3)")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds measured in a round, for each (8)")
    parser.add_argument("--samples", type=int, default=8, help="group size (8)")
    parser.add_argument("--batch", type=int, default=64, help="samples generated at once (64)")
    parser.add_argument("--long-tokens", type=int, default=128, help="tokens of a long answer (128)")
    parser.add_argument("--hot", type=float, default=5.0, help="temperature of long answers; vLLM takes 2 at most (5)")
    parser.add_argument("--engine", default="transformers", help="transformers, or vllm with RATCHET_AGENT_VLLM_URL")
    parser.add_argument("--model", help="folder, known model, or name on the server (models/small, of --real smollm2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    real_one = parser.add_argument_group("--real", real.__doc__)
    real_one.add_argument(
        "--real", action="store_true", help="a real model beside plain generate(), the fleet and vLLM"
    )
    real_one.add_argument("--groups", type=int, default=24, help="tasks in a round, for each (24)")
    real_one.add_argument("--threads", type=int, help="of the engines; chosen by size and load if not given")
    real_one.add_argument("--workloads", default="examples,distinct", help="which of the two (both)")
    real_one.add_argument("--contestants", help="of generate,engine,fleet,vllm (vllm where its environment is)")
    return parser.parse_args(arguments)


@contextmanager
def broker(settings: AgentSettings, folder: Path) -> Iterator[AgentSettings]:
    """The one the environment names, under a namespace of this run; else a private node."""
    if "amqp_url" in settings.model_fields_set:
        yield settings.model_copy(update={"namespace": f"bench-{uuid4().hex[:8]}."})
        return
    local = LocalBroker.on_free_ports(folder)
    node = local.start()
    try:
        local.wait_until_ready(node)
        yield AgentSettings.read(**settings.model_dump(exclude={"amqp_url"}), amqp_url=local.url)
    finally:
        local.stop(node)


async def measure(settings: AgentSettings, given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    todo = workloads(given.samples, given.batch // given.samples, given.long_tokens, given.hot)
    async with (
        bare_engine(settings) as bare_rate,
        agent_process(settings, folder / "agent.log") as agent,
        Client(settings, agent) as client,
    ):
        return [await compare(bare_rate, client, workload, settings.agent_prefetch, given) for workload in todo]


async def compare(
    bare_rate: BareRate, client: Client, workload: Workload, prefetch: int, given: argparse.Namespace
) -> dict[str, Any]:
    await bare_rate(workload, 1.0)
    bare, fleet = [], []
    for _ in range(given.rounds):
        bare.append(await bare_rate(workload, given.seconds))
        fleet.append(await client.rate(workload, 2 * prefetch, given.seconds))
    ratio = median(one.per_s for one in fleet) / median(one.per_s for one in bare)
    return {
        "workload": workload.name,
        "sampling": workload.sampling.model_dump(),
        "tasks_at_once": workload.concurrency,
        "bare": _figures(bare),
        "fleet": _figures(fleet),
        "ratio": ratio,
        "bar": BAR,
        "met": ratio >= BAR,
    }


def _figures(rounds: Sequence[Rate]) -> dict[str, Any]:
    return {
        "tokens_per_s": median(one.per_s for one in rounds),
        "tokens_per_cpu_s": median(one.per_cpu_s for one in rounds),
        "rounds": [asdict(one) for one in rounds],
    }


def table(found: dict[str, Any]) -> str:
    columns = 2 * f"{'bare':>11}{'fleet':>11}{'ratio':>9}"
    rows = [f"{'':8}{'tokens/s':>22}{'':9}{'tokens/CPU-s':>22}", f"{'answers':8}{columns}"]
    for bar in found["bars"]:
        pairs = [(bar["bare"][figure], bar["fleet"][figure]) for figure in ("tokens_per_s", "tokens_per_cpu_s")]
        figures = "".join(f"{bare:11.0f}{fleet:11.0f}{fleet / bare:9.2f}" for bare, fleet in pairs)
        rows.append(f"{bar['workload']:8}{figures}   {'met' if bar['met'] else 'MISSED'}: bar {BAR} of tokens/s")
    return "\n".join([f"{found['engine']} on {found['machine']}, medians of {found['rounds']}", *rows])


def main() -> int:
    """0 if all bars are met, else 1."""
    given = options()
    return real_main(given) if given.real else small_main(given)


def small_main(given: argparse.Namespace) -> int:
    concurrency = given.batch // given.samples
    given.rounds = given.rounds or 5
    settings = AgentSettings.read(
        agent_engine=given.engine,
        agent_model=given.model or "models/small",
        agent_max_batch=given.batch,
        agent_prefetch=concurrency if given.engine == "vllm" else 8 * concurrency,
    )
    with tempfile.TemporaryDirectory() as folder, broker(settings, Path(folder)) as wired:
        bars = uvloop.run(measure(wired, given, Path(folder)))
    found = {"engine": given.engine, "machine": machine(), "rounds": given.rounds, "bars": bars}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2) if given.json else table(found))
    return 0 if all(bar["met"] for bar in bars) else 1


def real_main(given: argparse.Namespace) -> int:
    there = (real.ROOT / ".venv-vllm" / "ready").exists()
    names = (given.contestants or f"generate,engine,fleet{',vllm' if there else ''}").split(",")
    rounds = given.rounds or 3
    settings = AgentSettings.read(agent_model=given.model or real.MODEL, agent_threads=given.threads)
    with tempfile.TemporaryDirectory() as folder, broker(settings, Path(folder)) as wired:
        figures = uvloop.run(real.measure(wired, names, given.workloads.split(","), given.groups, rounds))
    found = real.report(settings, figures, given.groups, rounds)
    real.write(found)
    print(json.dumps(found, indent=2) if given.json else real.table(found))
    return 0 if all(bar["met"] for bar in found["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
