"""Samples answers under 200 schemas, checks each with another library, and compares tokens a second.

`python -m bench.structured --model FOLDER [--suite FOLDER --schemas 200 --samples 50 --at-once 64]`. The suite is the
folder of a draft in the JSON Schema Test Suite, as the sdist of `jsonschema` has it (`json/tests/draft2020-12`): its
schemas of supported keywords come first, and made ones after them. An answer that was cut at its
limit is counted apart. Free and held rounds take turns in one process, with equally many samples of as many tokens:
those of the free engine know no end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jsonschema_rs

from bench.machine import machine
from ratchet.grammars.grammar import FormatRefused, check_schema
from ratchet.models.loading import LanguageModel, load_language_model
from schemas.messages.task import AnswerFormat
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.transformers_engine import TransformersEngine

SCHEMAS, SAMPLES, AT_ONCE, TOKENS, ROUNDS = 200, 50, 64, 90, 9
WORDS = ("red", "green", "blue", "small", "large", "yes", "no", "north", "south")


def suite_schemas(folder: Path) -> list[dict[str, Any]]:
    """Return the suite's schemas that the fleet takes; the rest would be a 400."""
    groups = [group for file in sorted(folder.glob("*.json")) for group in json.loads(file.read_text("utf-8"))]
    return [group["schema"] for group in groups if isinstance(group["schema"], dict) and _is_taken(group["schema"])]


def _is_taken(schema: dict[str, Any]) -> bool:
    try:
        check_schema(schema)
    except FormatRefused:
        return False
    return True


def make_schema(chance: random.Random, depth: int = 2) -> dict[str, Any]:
    """Return an object with up to four fields, some of which are lists and objects again."""
    names = chance.sample(WORDS, chance.randint(1, 4))
    fields = {name: _field(chance, depth) for name in names}
    needed = [name for name in names if chance.random() < 0.7]
    found = {"type": "object", "properties": fields, "required": needed, "additionalProperties": False}
    return found | {"$defs": {"word": {"enum": list(WORDS)}}} if depth == 2 else found


def _field(chance: random.Random, depth: int) -> dict[str, Any]:
    simple: list[dict[str, Any]] = [
        {"enum": chance.sample(WORDS, 3)},
        {"$ref": "#/$defs/word"},
        {"type": "integer", "minimum": 0, "maximum": 999},
        {"type": "boolean"},
        {"type": "string", "maxLength": 8},
        {"type": "string", "pattern": "^[a-z]{2}-[0-9]{3}$"},
        {"anyOf": [{"type": "null"}, {"type": "number", "minimum": -1, "maximum": 1}]},
    ]
    if depth and chance.random() < 0.3:
        inner = {"type": "array", "items": _field(chance, depth - 1), "maxItems": 3}
        return chance.choice([inner, make_schema(chance, depth - 1)])
    return chance.choice(simple)


def count_invalid(engine: TransformersEngine, asked: list[dict[str, Any]], samples: int) -> dict[str, int]:
    """Return how many answers ended by themselves, were cut, and were invalid. All schemas are asked at once."""
    forms = [AnswerFormat(type="json_schema", json_schema=schema) for schema in asked]
    sampling = Sampling(n=samples, max_tokens=TOKENS)
    requests = [GenerationRequest(f"sort: {number}", sampling, format=form) for number, form in enumerate(forms)]
    counts = {"ended": 0, "cut": 0, "invalid": 0}
    for schema, answer in zip(asked, engine.generate(requests), strict=True):
        assert isinstance(answer, Generation), answer
        validator = jsonschema_rs.validator_for(schema)
        for sample in answer.samples:
            counts["cut" if sample.finish_reason == "length" else "ended"] += 1
            counts["invalid"] += sample.finish_reason == "stop" and not _is_valid(validator, sample.text)
    return counts


def _is_valid(validator: Any, text: str) -> bool:
    try:
        return bool(validator.is_valid(json.loads(text, parse_float=_finite)))
    except ValueError:
        return False


def _finite(number: str) -> float:
    """Return the nearest double. JSON Schema bounds no `number` by itself; Python's JSON makes 1e999 infinite."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(number)))


def without_end(model: LanguageModel) -> LanguageModel:
    """Return the model, whose answers end at their limit alone from now on."""
    model.model.generation_config.eos_token_id, model.tokenizer.eos_token = -1, None
    return model


def tokens_per_second(engine: TransformersEngine, form: AnswerFormat | None, at_once: int) -> tuple[float, float]:
    """Return the rates of one round, per second and per CPU-second. All samples have as many tokens as they may."""
    asked = GenerationRequest("sort: dbcae", Sampling(n=at_once, max_tokens=TOKENS), format=form)
    began, began_cpu = time.perf_counter(), time.process_time()
    (answer,) = engine.generate([asked])
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    assert isinstance(answer, Generation), answer
    tokens = sum(len(sample.completion_ids or ()) for sample in answer.samples)
    return tokens / seconds, tokens / cpu_seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", type=Path, required=True, help="a folder, of the toy by `ratchet models make`")
    arguments.add_argument("--suite", type=Path, help="a folder of the JSON Schema Test Suite, of one draft")
    arguments.add_argument("--schemas", type=int, default=SCHEMAS)
    arguments.add_argument("--samples", type=int, default=SAMPLES, help="answers under each schema")
    arguments.add_argument("--at-once", type=int, default=AT_ONCE, help="samples of a round whose rate is measured")
    given = arguments.parse_args()
    load = partial(load_language_model, str(given.model), device="cpu")
    engine, endless = TransformersEngine(load, seed=1), TransformersEngine(lambda: without_end(load()), seed=1)
    engine.start()
    endless.start()
    print(machine())
    chance, suite = random.Random(1), suite_schemas(given.suite) if given.suite else []
    made = [make_schema(chance) for _ in range(given.schemas - len(suite))]
    print(f"{len(suite)} schemas of the suite, {len(made)} made: {count_invalid(engine, suite + made, given.samples)}")
    letters = {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 40}
    form = AnswerFormat(type="json_schema", json_schema=letters)
    both = ((endless, None), (engine, form))
    for one in both:
        tokens_per_second(*one, given.at_once)
    rounds = [[tokens_per_second(*one, given.at_once) for one in both] for _ in range(ROUNDS)]
    for place, unit in enumerate(("second", "CPU-second")):
        rates = [(free[place], held[place]) for free, held in rounds]
        free, held = (median(column) for column in zip(*rates, strict=True))
        ratios = sorted(held / free for free, held in rates)
        print(f"tokens a {unit}: free {free:,.0f}, held {held:,.0f}; held / free in a round, median", end=" ")
        print(f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
