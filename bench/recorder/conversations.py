"""Agents that talk with the engine through one contestant: at a pace and all at once, or one through a long talk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from bench.pipeline.cpu import cpu_seconds
from bench.recorder.client import Connection, Failed
from bench.recorder.script import asked, request


@dataclass(frozen=True, slots=True)
class Route:
    """Where one agent finds its model. `key`: what names its rollout to the contestant, if anything does."""

    base_url: str
    headers: Mapping[str, str]
    key: str = ""


async def _nothing(route: Route) -> None:
    """Nobody keeps a record that would have to be closed."""


@dataclass(frozen=True)
class Contestant:
    """`begin`: routes for so many agents; `end`: the agent of that route is done, and its record is written.

    `pids`: the roots of its processes, without the engine's. One that does not stream is asked for whole answers alone.
    """

    name: str
    pids: Collection[int]
    begin: Callable[[int], Awaitable[Sequence[Route]]]
    end: Callable[[Route], Awaitable[None]] = _nothing
    streams: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class Talk:
    """What the agents do. `spread_s`: the last begins so long after the first, so that they do not all ask at once."""

    agents: int
    turns: int
    stream: bool
    spread_s: float = 0.0


@dataclass
class Measured:
    """Of all agents together. `first_s`, `whole_s`: of each call, in order of turns, by agent."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    texts: list[str] = field(default_factory=list)
    first_s: list[list[float]] = field(default_factory=list)
    whole_s: list[list[float]] = field(default_factory=list)


async def measure(contestant: Contestant, talk: Talk) -> Measured:
    """From the first request to the last record. Raises Failed."""
    routes = await contestant.begin(talk.agents)
    found = Measured()
    groups = {"its": contestant.pids}
    cpu, began = cpu_seconds(groups)["its"], time.perf_counter()
    await asyncio.gather(*(_agent(contestant, route, talk, at, found) for at, route in enumerate(routes)))
    found.seconds = time.perf_counter() - began
    found.cpu_s = cpu_seconds(groups)["its"] - cpu
    return found


async def _agent(contestant: Contestant, route: Route, talk: Talk, number: int, found: Measured) -> None:
    await asyncio.sleep(talk.spread_s * number / talk.agents)
    said, messages = asked(number), list[dict[str, Any]]()
    messages.append(next(said))
    first_s, whole_s = list[float](), list[float]()
    connection = Connection(route.base_url, route.headers)
    async with aclosing(connection):
        for _ in range(talk.turns):
            messages.append(next(said))
            try:
                reply = await connection.ask(request(messages, stream=talk.stream))
            except (Failed, OSError, EOFError, ValueError) as error:
                raise Failed(f"{contestant.name}: {error or type(error).__name__}") from error
            messages.append({"role": "assistant", "content": reply.text})
            first_s.append(reply.first_s)
            whole_s.append(reply.whole_s)
            found.texts.append(reply.text)
    found.first_s.append(first_s)
    found.whole_s.append(whole_s)
    await contestant.end(route)


def unknown(texts: Iterable[str], known: Collection[str]) -> list[str]:
    """Of what the agents were told, what the engine never says."""
    return [text for text in texts if text not in known]
