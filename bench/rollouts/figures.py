"""The cost of a rollout over a bare process and a bare sandbox, in turns; beside seven others; beside bad ones."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from bench.rollouts.house import House, Model, model, runner
from bench.rollouts.neighbours import BAD, FILES, SECRET, bad, good, program
from ratchet.programs.declared import Program
from schemas.messages.response import Response
from schemas.messages.workspace import Workspace
from workbench.sandbox import cgroup
from workbench.sandbox.job import Job
from workbench.sandbox.running import Stop, run
from workbench.sandbox.syscalls import filters

ECHO = ("python3", "-I", "-S", "-c", "import sys; print(sys.stdin.read())")
INPUT = "echo"
AT_ONCE = (1, 2, 4)
RUNS = 32
CALLS = (1, 11)
TRIES = 9
LATENCY_S = 0.5
TOGETHER = 8
CLOSE_ENOUGH = 1.3


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    with model(folder, 0.0) as there:
        rates = [asyncio.run(_rates(folder, there)) for _ in range(rounds)]
        costs = [asyncio.run(_costs(folder, there)) for _ in range(rounds)]
    with model(folder, LATENCY_S) as there:
        together = [asyncio.run(_together(folder, there)) for _ in range(rounds)]
        neighbours = asyncio.run(_neighbours(folder, there, rounds))
    found = {
        "rates": _medians(rates),
        "costs": _medians(costs),
        "together": _medians(together),
    }
    complaints = [f"{name}: {why}" for name, row in neighbours.items() for why in row.pop("complaints")]
    return found | {"neighbours": neighbours, "complaints": complaints}


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(one[name] for one in rounds), 4) for name in rounds[0]}


async def _rates(folder: Path, there: Model) -> dict[str, float]:
    """Measure the runs a second of a program that echoes its input and asks no model."""
    found: dict[str, float] = {}
    for at_once in AT_ONCE:
        plain = await asyncio.to_thread(_per_s, _plain, at_once)
        sandboxed = await asyncio.to_thread(_per_s, _sandbox_run(cgroup.find()), at_once)
        async with runner(folder, there, {"echo": Program(command=ECHO)}, at_once) as house:
            response = await house.answer(f"rate-{at_once}", RUNS, input=INPUT)
        _require_all_finished(response)
        rollouts = RUNS / house.seconds
        found |= {
            f"{at_once} at once, processes/s": plain,
            f"{at_once} at once, sandboxes/s": sandboxed,
            f"{at_once} at once, rollouts/s": rollouts,
            f"{at_once} at once, rollouts over processes": rollouts / plain,
            f"{at_once} at once, rollouts over sandboxes": rollouts / sandboxed,
        }
    return found


def _per_s(once: Callable[[], None], at_once: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda _: once(), range(RUNS)))
    return RUNS / (time.perf_counter() - began)


def _plain() -> None:
    subprocess.run(ECHO, input=INPUT.encode(), env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True)


def _sandbox_run(cgroups: cgroup.Cgroups | None) -> Callable[[], None]:
    programs = filters()

    def once() -> None:
        stop = Stop()
        result = run(Job(ECHO, stdin=INPUT.encode()), programs, cgroups, stop)
        stop.close()
        assert result.succeeded, result

    return once


async def _costs(folder: Path, there: Model) -> dict[str, float]:
    """Milliseconds of a whole rollout with so many calls, and of the same program as a plain process that asks a model
    which is as quick; and the difference, by rollout and by call."""
    seconds: dict[str, float] = {}
    asking = {f"asks-{calls}": program(f"for _ in range({calls}): said = ask('hello')\nprint(said)") for calls in CALLS}
    async with runner(folder, there, asking, 1) as house:
        for calls, name in zip(CALLS, asking, strict=True):
            script = folder / f"{name}.py"
            script.write_text(asking[name].data["/program/main.py"])
            plain, rollouts = [], []
            for number in range(TRIES):
                plain.append(await asyncio.to_thread(_asking, script, there.plain_url))
                response = await house.answer(f"cost-{calls}-{number}-{time.monotonic_ns()}", 1, programs=(name,))
                _require_all_finished(response)
                rollouts.append(house.seconds)
            seconds |= {f"plain {calls}": median(plain), f"rollout {calls}": median(rollouts)}
    few, many = CALLS
    added = seconds[f"rollout {few}"] - seconds[f"plain {few}"]
    more = (seconds[f"rollout {many}"] - seconds[f"plain {many}"] - added) / (many - few)
    return {f"{name} calls, ms": 1000 * value for name, value in seconds.items()} | {
        "added by rollout, ms": 1000 * (added - few * more),
        "added by call, ms": 1000 * more,
    }


def _asking(script: Path, url: str) -> float:
    environment = {"PATH": "/usr/bin:/bin", "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
    began = time.perf_counter()
    subprocess.run(("python3", "-I", "-S", script), env=environment, capture_output=True, check=True)
    return time.perf_counter() - began


async def _together(folder: Path, there: Model) -> dict[str, float]:
    """Programs that wait for the model: the slowest of some alone, one after the other, and a group of eight."""
    async with runner(folder, there, {"good": good()}, TOGETHER) as house:
        alone = []
        for number in range(TOGETHER // 2):
            _require_all_finished(await house.answer(f"alone-{number}", 1))
            alone.append(house.seconds)
        _require_all_finished(await house.answer("together", TOGETHER))
    return {
        "slowest of those alone, s": max(alone),
        "a group of 8, s": house.seconds,
        "a group over the slowest": house.seconds / max(alone),
    }


async def _neighbours(folder: Path, there: Model, rounds: int) -> dict[str, Any]:
    """Run a good one beside each bad one, and return its time over that alone, in turns."""
    found: dict[str, Any] = {}
    for name in BAD:
        alone, beside = [], []
        async with runner(folder, there, {"bad": bad(name), "good": good()}, TOGETHER) as house:
            for number in range(rounds):
                given = {"workspace": Workspace(files=FILES)}
                await house.answer(f"{name} {number} alone", 1, programs=("good",), **given)
                alone.append(_of(house, "good").seconds)
                response = await house.answer(f"{name} {number}", 2, programs=("bad", "good"), **given)
                beside.append(_of(house, "good").seconds)
                ended = _of(house, "bad")
                complaints = _complaints(name, response)
        ratio = median(beside) / median(alone)
        if ratio > CLOSE_ENOUGH:
            complaints.append(f"its neighbour took {ratio:.2f} × its time")
        found[name] = {
            "ended": ended.status,
            "reason": ended.says,
            "neighbour's time over alone": round(ratio, 3),
            "complaints": complaints,
        }
    return found


def _complaints(name: str, response: Response) -> list[str]:
    it, neighbour = response.samples
    found = []
    if (neighbour.status, neighbour.text) != ("finished", FILES["test_it.py"].strip()):
        found.append(f"its neighbour is {neighbour.status}: {neighbour.text!r}")
    if name == "reads its neighbour" and it.text != "[]":
        found.append(f"it found {SECRET} in {it.text}")
    return found


def _of(house: House, program: str) -> Any:
    return next(one for one in house.ended if one.program == program)


def _require_all_finished(response: Response) -> None:
    ends = [(sample.status, sample.text) for sample in response.samples if sample.status != "finished"]
    assert not ends and response.error is None, (ends[:2], response.error, os.getloadavg())
