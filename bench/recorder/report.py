"""Medians over the rounds, ratios to the bare engine in the same round, and the bars that the recorder is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.recorder.compare import Found, Rounds, Setting
from bench.recorder.contestants import BARE, BY_AGENT, LIGHTNING, LITELLM, RECORDER
from bench.recorder.conversations import Measured

MOST_ADDED_MS = 5.0
LEAST_OF_BARE = 0.9
FLAT = 1.5
"""The added time of a late turn over that of an early one."""
LOOKED_AT = (1, 10, 25, 50)
BESIDE = 2
"""Turns before and behind one that is looked at, which count with it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Over the rounds."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f}–{self.highest:.2f})"


@dataclass(frozen=True, slots=True)
class Line:
    """One contestant in one setting. `added_ms`: the median call's time to its first token (of a whole answer, to its
    end) over the bare engine's in the same round; `of_bare`: of its tokens/s. CPU of its own processes."""

    name: str
    tokens_per_s: Spread
    of_bare: Spread
    first_ms: Spread
    added_ms: Spread
    added_p95_ms: Spread
    cpu_ms_per_call: Spread


def lines(rounds: Rounds, setting: str, tokens: int) -> dict[str, Line]:
    bare = rounds.get((setting, BARE))
    if bare is None:
        return {}
    return {name: _line(name, taken, bare, tokens) for (where, name), taken in rounds.items() if where == setting}


def _line(name: str, taken: Sequence[Measured], bare: Sequence[Measured], tokens: int) -> Line:
    rates = [len(one.texts) * tokens / one.seconds for one in taken]
    bare_rates = [len(one.texts) * tokens / one.seconds for one in bare]
    firsts, bare_firsts = [_firsts_ms(one) for one in taken], [_firsts_ms(one) for one in bare]
    pairs = list(zip(firsts, bare_firsts, strict=True))
    return Line(
        name,
        Spread.of(rates),
        Spread.of([rate / other for rate, other in zip(rates, bare_rates, strict=True)]),
        Spread.of([median(one) for one in firsts]),
        Spread.of([median(one) - median(other) for one, other in pairs]),
        Spread.of([_p95(one) - _p95(other) for one, other in pairs]),
        Spread.of([1000 * one.cpu_s / len(one.texts) for one in taken]),
    )


def _firsts_ms(measured: Measured) -> list[float]:
    return [1000 * first for agent in measured.first_s for first in agent]


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def by_turn(rounds: Rounds, setting: str) -> dict[str, dict[int, float]]:
    """Milliseconds that a whole turn of one long conversation takes over the bare engine's, by contestant and turn:
    medians over rounds and the turns beside it."""
    bare = rounds.get((setting, BARE))
    if bare is None:
        return {}
    return {
        name: {turn: _at(taken, turn) - _at(bare, turn) for turn in _looked_at(taken)}
        for (where, name), taken in rounds.items()
        if where == setting and name != BARE
    }


def _looked_at(taken: Sequence[Measured]) -> list[int]:
    turns = len(taken[0].whole_s[0])
    return [turn for turn in LOOKED_AT if turn <= turns]


def _at(taken: Sequence[Measured], turn: int) -> float:
    first = max(0, turn - 1 - BESIDE)
    return median(1000 * took for one in taken for agent in one.whole_s for took in agent[first : turn + BESIDE])


def bars(found: Found, of: Sequence[Setting], tokens: int) -> list[dict[str, Any]]:
    """Those that can be told from what was measured."""
    by_setting = {setting.name: lines(found.rounds, setting.name, tokens) for setting in of}
    told = []
    for name in (RECORDER, BY_AGENT):
        if (line := by_setting.get("paced, streamed", {}).get(name)) is not None:
            told.append(_bar(f"{name}: added to the first token, ms", line.added_ms.median, most=MOST_ADDED_MS))
            told.append(_bar(f"{name}: tokens/s of the bare engine's", line.of_bare.median, least=LEAST_OF_BARE))
    for rival, how in ((LITELLM, "streamed"), (LITELLM, "whole"), (LIGHTNING, "whole")):
        told += _ahead(rival, how, by_setting)
    for how in ("streamed", "whole"):
        turns = by_turn(found.rounds, f"one long, {how}").get(RECORDER, {})
        if len(turns) > 1:
            early, late = turns[min(turns)], turns[max(turns)]
            told.append(_bar(f"{RECORDER}, {how}: turn {max(turns)} over turn {min(turns)}", late / early, most=FLAT))
    return told


def _ahead(rival: str, how: str, by_setting: Mapping[str, Mapping[str, Line]]) -> list[dict[str, Any]]:
    told = []
    for pace in ("paced", "flat out"):
        there = by_setting.get(f"{pace}, {how}", {})
        if RECORDER not in there or rival not in there:
            continue
        ours, theirs = there[RECORDER], there[rival]
        if pace == "paced":
            what = f"added time over {rival}'s, {how}, ms"
            told.append(_bar(what, ours.added_ms.median - theirs.added_ms.median, most=0.0))
        else:
            what = f"tokens/s over {rival}'s, {how}, {pace}"
            told.append(_bar(what, ours.tokens_per_s.median / theirs.tokens_per_s.median, least=1.0))
    return told


def _bar(what: str, value: float, *, least: float | None = None, most: float | None = None) -> dict[str, Any]:
    met = value >= least if least is not None else value <= (most or 0.0)
    return {"what": what, "value": value, "least": least, "most": most, "met": met}


def as_json(found: Found, of: Sequence[Setting], tokens: int) -> dict[str, Any]:
    return {
        "machine": found.loads,
        "tokens_of_an_answer": tokens,
        "settings": {setting.name: asdict(setting) for setting in of},
        "lines": {
            setting.name: {name: asdict(line) for name, line in lines(found.rounds, setting.name, tokens).items()}
            for setting in of
        },
        "by_turn": {setting.name: by_turn(found.rounds, setting.name) for setting in of if setting.talk.agents == 1},
        "notes": found.notes,
        "missing": found.missing,
        "complaints": found.complaints,
        "bars": bars(found, of, tokens),
    }


def table(found: Found, of: Sequence[Setting], tokens: int) -> str:
    text = [f"{found.loads[0]}; at the end of the rounds {', '.join(_load(one) for one in found.loads[1:])}"]
    for setting in of:
        text += ["", *(_long(found, setting) if setting.talk.agents == 1 else _rates(found, setting, tokens))]
    text.append("")
    text += [f"{name}: {note}" for name, note in found.notes.items()]
    text += [f"{name} is not there: {why}" for name, why in found.missing.items()]
    text += [f"COMPLAINT: {one}" for one in found.complaints]
    return "\n".join([*text, "", *map(_sentence, bars(found, of, tokens))])


def _load(told: str) -> str:
    return told.rpartition(", ")[2]


def _rates(found: Found, setting: Setting, tokens: int) -> list[str]:
    talk, pace = setting.talk, setting.pace
    how = f"{1000 * pace.token_s:g} ms a token" if pace.token_s else "as fast as it goes"
    rows = [f"{setting.name}: {talk.agents} agents, {talk.turns} turns, answers of {tokens} tokens, {how}"]
    rows.append(f"  {'':20}{'tokens/s':>10}{'of bare':>20}{'first, ms':>11}{'added, ms':>28}{'p95':>8}{'CPU/call':>10}")
    rows += [
        f"  {one.name:20}{one.tokens_per_s.median:10.0f}{one.of_bare!s:>20}{one.first_ms.median:11.1f}"
        f"{one.added_ms!s:>28}{one.added_p95_ms.median:8.1f}{one.cpu_ms_per_call.median:7.1f} ms"
        for one in lines(found.rounds, setting.name, tokens).values()
    ]
    return rows


def _long(found: Found, setting: Setting) -> list[str]:
    told = by_turn(found.rounds, setting.name)
    turns = sorted({turn for one in told.values() for turn in one})
    rows = [f"{setting.name}: what a turn takes over the bare engine's, ms"]
    rows.append(f"  {'':20}" + "".join(f"{f'turn {turn}':>10}" for turn in turns))
    rows += [f"  {name:20}" + "".join(f"{one[turn]:10.1f}" for turn in turns) for name, one in told.items()]
    return rows


def _sentence(bar: Mapping[str, Any]) -> str:
    bound = f"at least {bar['least']:g}" if bar["least"] is not None else f"at most {bar['most']:g}"
    return f"{'met' if bar['met'] else 'MISSED'}: {bar['what']}: {bar['value']:.2f} ({bound})"
