"""python -m bench.unattended [--minutes 60] [--rate 0.5]: a real model under steady traffic, and nobody there.

SmolLM2 answers orders and dates of users who come at a steady rate, whatever it does meanwhile. The fleet asks for
trainings itself, tries what they make on that traffic, promotes or not. Then held-out tasks are asked of the model as
it was fetched and of what answers by then, marked by a verifier that the fleet never saw. Exits 1 if nothing was
promoted, a task was lost, held-out tasks did not gain, or a process holds 10 % more or less memory in the end than
after ten minutes. Everything goes to bench/out/unattended.json.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

from bench.machine import machine, write_figures
from bench.unattended.memory import Flatness, Memory
from demos.books import Measured, dead_letters, measure
from demos.demo import Sizes
from demos.performance import AGENT, write_golden_set
from demos.real.demo import ALL, MODEL, RealDemo, settings
from demos.real.tasks import RealTask
from ratchet.adapters.registry import RegistryStore
from ratchet.client import AsyncFleet
from ratchet.experiments.gain import Gain
from ratchet.models.fetch import fetch
from ratchet.models.known import KNOWN
from ratchet.service.errors import TimedOut
from ratchet.service.settings import FleetSettings
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import Decision
from services.cli.fleet.folder import FleetAccess, FleetFolder
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace, only
from services.cli.fleet.start import start_fleet, stop_fleet

LOOK_EVERY_S = 15.0
SETTLED_S = 600.0
"""The time after which memory must be flat."""
FLAT, SMALL_MIB = 0.10, 10.0
"""A share, of what is larger than that."""
LAST_ANSWERS_S = 300.0


def main() -> None:
    options = _options()
    model, models = KNOWN[MODEL], FleetSettings.read().models_dir
    fetch(model, models, print)
    place = FleetPlace.here("unattended")
    fleet = settings(options.seed) | {
        "RATCHET_MODELS_DIR": str(models),
        "RATCHET_TRAIN_AFTER_GROUPS": str(options.groups),
    }
    sizes = Sizes(tasks=64, samples=4, turns=1, groups=options.groups, no_turn_after=0.0, timeout=600.0)
    demo = RealDemo(sizes=sizes, seed=options.seed, answers=options.samples)
    with only(place.settings("") | fleet):
        stop_fleet()
        place.make_anew("")
        write_golden_set(place, demo.golden_tasks())
        started = FleetOptions(
            agents=(AGENT,),
            model=MODEL,
            scorer="verifier:json",
            port_base=options.port_base,
            amqp_port=options.amqp_port,
        )
        start_fleet(started, None, 600.0, insist=False)
        try:
            told, sound = watch(place, demo, options)
        finally:
            stop_fleet()
    write_figures("unattended", told)
    sys.exit(0 if sound else 1)


def watch(place: FleetPlace, demo: RealDemo, options: argparse.Namespace) -> tuple[dict[str, object], bool]:
    """Return the report, and whether all of it holds."""
    access = FleetAccess.here()
    store = RegistryStore.from_settings(FleetSettings.read(adapters_dir=place.adapters, logs_dir=place.logs))
    memory = Memory(FleetFolder.here())
    statuses = asyncio.run(_traffic(access, demo.users(), memory, store, options.minutes * 60, options.rate))
    letters = dead_letters(access)
    decisions = [decision for decision, _ in store.ledger.read()]
    primary = store.read().agent(AGENT).primary
    gains = _gains(access, demo, primary)
    flat = sorted(memory.flatness(SETTLED_S, options.minutes * 60), key=lambda one: one.name)
    faults = list(_faults(statuses, letters, decisions, gains[ALL], flat))
    _print_report(statuses, letters, decisions, gains, flat, faults)
    report = {
        "machine": machine(),
        "minutes": options.minutes,
        "rate": options.rate,
        "statuses": statuses,
        "dead_letters": letters,
        "primary": primary,
        "decisions": [decision.model_dump(mode="json") for decision in decisions],
        "held_out": {name: found.as_dict() for name, found in gains.items()},
        "memory": [asdict(one) | {"change": one.change} for one in flat],
        "faults": faults,
    }
    return report, not faults


async def _traffic(
    access: FleetAccess, tasks: Iterator[Task], memory: Memory, store: RegistryStore, seconds: float, rate: float
) -> Counter[str]:
    """Count the Results of each status; `open` counts tasks that got none."""
    statuses: Counter[str] = Counter()
    began, sent = time.monotonic(), 0
    async with AsyncFleet(access.amqp_url, stall_s=LAST_ANSWERS_S) as users:
        looking = asyncio.create_task(_look(memory, store, began, statuses))
        while (now := time.monotonic() - began) < seconds:
            if sent / rate > now:  # the pace of the users
                statuses.update(result.status for result in await users.listen(sent / rate - now))
            else:
                await users.submit(next(tasks))
                sent += 1
        with suppress(TimedOut):
            async for result in users.results():
                statuses[result.status] += 1
        looking.cancel()
    statuses["open"] = sent - statuses.total()
    return statuses


async def _look(memory: Memory, store: RegistryStore, began: float, statuses: Counter[str]) -> None:
    told = 0
    while True:
        second = time.monotonic() - began
        await asyncio.to_thread(memory.look, second)
        decisions = [decision for decision, _ in store.ledger.read()]
        for decision in decisions[told:]:
            print(f"{second / 60:5.1f} min  {decision.move.kind}: {decision.reason}", flush=True)
        if int(second / 300) != int((second - LOOK_EVERY_S) / 300):
            print(f"{second / 60:5.1f} min  {statuses.total()} tasks answered", flush=True)
        told = len(decisions)
        await asyncio.sleep(LOOK_EVERY_S)  # between two looks


def _gains(access: FleetAccess, demo: RealDemo, primary: str) -> dict[str, Gain]:
    """Held-out tasks, of the model as it was fetched and of the primary."""

    def answers(stage: str, version: str) -> Measured[RealTask]:
        tasks = demo.name_questions(stage, demo.held_out())
        return measure(access, tasks, demo.measuring_tasks(tasks, version, demo.sizes.samples), demo.sizes.timeout)

    return demo.gains(answers("before", BASE_VERSION), answers("after", primary))


def _faults(
    statuses: Counter[str], letters: int, decisions: Sequence[Decision], found: Gain, flat: Sequence[Flatness]
) -> Iterator[str]:
    if lost := statuses.total() - statuses["ok"]:
        yield f"{lost} tasks were not answered: {dict(statuses)}"
    if letters:
        yield f"{letters} dead letters"
    if not any(decision.move.kind == "promote" for decision in decisions):
        yield "nothing was promoted"
    if not found.significant:
        yield "no gain on held-out tasks is proved"
    for one in flat:
        if abs(one.change) > FLAT and one.last > SMALL_MIB:
            yield f"{one.name}: {one.first:.0f} MiB became {one.last:.0f}"


def _print_report(
    statuses: Counter[str],
    letters: int,
    decisions: Sequence[Decision],
    gains: dict[str, Gain],
    flat: Sequence[Flatness],
    faults: Sequence[str],
) -> None:
    print(machine())
    print(f"tasks by status: {dict(statuses)}; dead letters: {letters}")
    print("decisions:", dict(Counter(decision.move.kind for decision in decisions)))
    for name, found in gains.items():
        print(f"held-out {name}: {found.before.mean:.3f} -> {found.after.mean:.3f}")
    for one in flat:
        print(f"{one.name:50} {one.first:7.1f} -> {one.last:7.1f} MiB, at most {one.most:7.1f} ({one.change:+.1%})")
    print("\n".join(faults) if faults else "all of it holds")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=0.5, help="tasks a second")
    parser.add_argument("--samples", type=int, default=4, help="answers to a task")
    parser.add_argument("--groups", type=int, default=120, help="new groups after which the fleet asks for a training")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port-base", type=int, default=8700, help="of the services' ports, as for ratchet up")
    parser.add_argument("--amqp-port", type=int, default=5673)
    return parser.parse_args()


if __name__ == "__main__":
    main()
