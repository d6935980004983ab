"""Who stands in front of the engine: nobody, Ratchet's recorder, LiteLLM's proxy, Agent Lightning's; each a process.

What is not installed here is made in an environment of its own. One that can't be had is left out, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.recorder.conversations import Contestant, Route
from bench.recorder.script import MODEL
from ratchet.programs.environments import Environments, NotInstalled
from tests.private_broker import free_port

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-bench"
READY_S = 180.0
BARE, RECORDER, BY_AGENT, LITELLM, LIGHTNING = "bare", "recorder", "recorder-by-agent", "litellm", "agent-lightning"
NAMES = (BARE, RECORDER, BY_AGENT, LITELLM, LIGHTNING)
LITELLM_IS = ("litellm[proxy]==1.106.0",)
LIGHTNING_IS = ("agentlightning==1.0.2",)
OWN_PYTHON = (3, 12)
"""Agent Lightning declares that it needs this one; what its server imports runs on 3.11 too, and is let."""


class NotThere(Exception):
    """A contestant can't take part; the sentence says why."""


@dataclass
class Stage:
    """What contestants are made with. `engine`: base URL, without /v1. `calls`: by contestant, the ids of each recorded
    call; `complaints` about records."""

    engine: str
    tokenizer: Path
    folder: Path
    environments: Path
    calls: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


@asynccontextmanager
async def process(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Ended with all that it started. Its complaints go to the file."""
    with log.open("wb") as complaints:
        started = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=complaints,
            env=os.environ | dict(environment or {}),
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()


async def told(started: asyncio.subprocess.Process, log: Path) -> dict[str, Any]:
    """Its first line, which says where it listens. Raises NotThere."""
    assert started.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            line = await started.stdout.readline()
        return dict(json.loads(line))
    except (TimeoutError, ValueError):
        raise NotThere(f"it did not start: {_end_of(log)}") from None


async def _until_ready(started: asyncio.subprocess.Process, url: str, log: Path) -> None:
    """Raises NotThere."""
    until = time.monotonic() + READY_S
    async with httpx.AsyncClient(trust_env=False) as http:
        while started.returncode is None and time.monotonic() < until:
            with suppress(httpx.HTTPError):
                if (await http.get(url)).is_success:
                    return
            await asyncio.sleep(0.2)
    raise NotThere(f"it did not get ready: {_end_of(log)}")


def _end_of(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split())[-400:] or "it said nothing"


def _same(base_url: str, **headers: str) -> Callable[[int], Awaitable[Sequence[Route]]]:
    async def begin(agents: int) -> Sequence[Route]:
        return [Route(base_url, headers)] * agents

    return begin


@asynccontextmanager
async def _bare(stage: Stage) -> AsyncIterator[Contestant]:
    yield Contestant(BARE, (), _same(f"{stage.engine}/v1"), note="the engine itself, asked in text")


@asynccontextmanager
async def _recorder(stage: Stage, name: str = RECORDER) -> AsyncIterator[Contestant]:
    async with AsyncExitStack() as stack:
        url, pids = stage.engine, list[int]()
        if name == BY_AGENT:
            log = stage.folder / "agent.log"
            command = (sys.executable, "-m", "bench.recorder.agent", stage.engine, str(stage.folder))
            agent = await stack.enter_async_context(process(command, log))
            url = (await told(agent, log))["url"]
            pids.append(agent.pid)
        log = stage.folder / f"{name}.log"
        order = {"url": url, "agent": name == BY_AGENT, "tokenizer": str(stage.tokenizer)}
        given = json.dumps(order | {"folder": str(stage.folder / name)})
        command = (sys.executable, "-m", "bench.recorder.recording", given)
        started = await stack.enter_async_context(process(command, log))
        where = await told(started, log)

        async def ask(asked: dict[str, Any]) -> dict[str, Any]:
            reader, writer = await asyncio.open_connection("127.0.0.1", where["port"], limit=1 << 26)
            writer.write(json.dumps(asked).encode() + b"\n")
            answer = await reader.readline()
            writer.close()
            return dict(json.loads(answer))

        async def begin(agents: int) -> Sequence[Route]:
            keys = (await ask({"begin": agents}))["keys"]
            return [Route(where["base_url"], {"Authorization": f"Bearer {key}"}, key) for key in keys]

        async def end(route: Route) -> None:
            record = await ask({"end": route.key})
            stage.calls.setdefault(name, []).extend(tuple(ids) for ids in record["calls"])
            if record["segments"] != 1 or record["breaks"]:
                stage.complaints.append(f"{name}: {record['segments']} segments, breaks {record['breaks']}")

        notes = {
            RECORDER: "Ratchet's, asks the engine by ids; the record of each conversation fsynced at its end",
            BY_AGENT: "the same, by way of a fleet's agent, as `ratchet record` and runners ask",
        }
        yield Contestant(name, (*pids, started.pid), begin, end, note=notes[name])


@asynccontextmanager
async def _by_agent(stage: Stage) -> AsyncIterator[Contestant]:
    async with _recorder(stage, BY_AGENT) as contestant:
        yield contestant


async def _environment(stage: Stage, name: str, requirements: Sequence[str]) -> Path:
    """Its folder of programs. Raises NotThere."""

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)

    try:
        place = await asyncio.to_thread(Environments(stage.environments).install, name, requirements, say)
    except NotInstalled as error:
        raise NotThere(str(error)) from error
    return place / "bin"


@asynccontextmanager
async def _litellm(stage: Stage) -> AsyncIterator[Contestant]:
    programs = await _environment(stage, LITELLM, LITELLM_IS)
    port, log, config = free_port(), stage.folder / "litellm.log", stage.folder / "litellm.yaml"
    key = f"sk-{secrets.token_hex(32)}"
    parameters = {"model": f"openai/{MODEL}", "api_base": f"{stage.engine}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
        "litellm_settings": {"request_timeout": 600, "set_verbose": False},
        "general_settings": {"master_key": key},
    }
    config.write_text(json.dumps(settings))  # which is YAML
    command = (programs / "litellm", "--config", config, "--host", "127.0.0.1", "--port", str(port))
    production = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    async with process((*command, "--num_workers", "1"), log, production) as started:
        drained = asyncio.create_task(_drain(started))
        await _until_ready(started, f"http://127.0.0.1:{port}/health/liveliness", log)
        note = f"{LITELLM_IS[0]}, one worker, its master key, no database: it keeps nothing"
        begin = _same(f"http://127.0.0.1:{port}/v1", Authorization=f"Bearer {key}")
        yield Contestant(LITELLM, (started.pid,), begin, note=note)
        drained.cancel()


async def _drain(started: asyncio.subprocess.Process) -> None:
    assert started.stdout is not None
    while await started.stdout.read(1 << 16):
        pass


@asynccontextmanager
async def _lightning(stage: Stage) -> AsyncIterator[Contestant]:
    anyway = ("--ignore-requires-python",) if sys.version_info < OWN_PYTHON else ()
    programs = await _environment(stage, LIGHTNING, (*LIGHTNING_IS, *anyway))
    port, log = free_port(), stage.folder / "agent-lightning.log"
    where = f"http://127.0.0.1:{port}"
    hydra = (f"hydra.run.dir={stage.folder / 'hydra'}", "hydra.output_subdir=null")
    command = (programs / "agl-server", "host=127.0.0.1", f"port={port}", f"default_proxy.model_name={MODEL}", *hydra)
    async with process(command, log) as started, httpx.AsyncClient(base_url=where, trust_env=False) as http:
        drained = asyncio.create_task(_drain(started))
        await _until_ready(started, f"{where}/healthz", log)
        model = {"model": MODEL, "endpoint": f"{stage.engine}/v1"}
        (await http.post("/api/models", json=[model])).raise_for_status()

        async def begin(agents: int) -> Sequence[Route]:
            made = (await http.post("/api/rollouts", json=[{"input": "x"}] * agents)).raise_for_status().json()
            paths = [f"{where}/proxy/rollout/{one['rollout_id']}/attempt/0/mode/train/openai/v1" for one in made]
            return [Route(path, {}) for path in paths]

        note = f"{LIGHTNING_IS[0]}, its server as it starts; it refuses to stream, and keeps its events in memory"
        yield Contestant(LIGHTNING, (started.pid,), begin, streams=False, note=note)
        drained.cancel()


MAKERS = {BARE: _bare, RECORDER: _recorder, BY_AGENT: _by_agent, LITELLM: _litellm, LIGHTNING: _lightning}


@asynccontextmanager
async def contestants(
    names: Sequence[str], stage: Stage, missing: dict[str, str]
) -> AsyncIterator[Sequence[Contestant]]:
    """Those of the names that can be had; the others are in `missing`, with the reason. Raises NotThere for ours."""
    async with AsyncExitStack() as stack:
        found = []
        for name in names:
            try:
                found.append(await stack.enter_async_context(MAKERS[name](stage)))
            except NotThere as error:
                if name not in (LITELLM, LIGHTNING):
                    raise
                missing[name] = str(error)
        yield found
