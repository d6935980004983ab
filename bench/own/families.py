"""Seven jobs that teams bring, each with a format of its own, held out by template and by value.

No template and no value (name, city, product, year, number …) of a held-out task is in any task that is trained on.
Each prompt has an instruction and two example turns.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from schemas.messages.task import ChatMessage

HELD_OUT_TEMPLATES = 3
"""The last ones of each family."""
Values = Mapping[str, str]
Make = Callable[[random.Random, bool], tuple[Values, str]]
"""Makes what fills a template, and the reference; for a held-out task or not."""


@dataclass(frozen=True, slots=True)
class OwnTask:
    input: tuple[ChatMessage, ...]
    reference: str


@dataclass(frozen=True, slots=True)
class Family:
    """`scorer`: a specification, whose full marks are what is called exact; `max_tokens` of an answer."""

    name: str
    instruction: str
    scorer: str
    max_tokens: int
    templates: Sequence[str]
    make: Make

    def tasks(self, count: int, seed: int, *, held_out: bool = False, examples: int = 2) -> list[OwnTask]:
        """Return `count` different tasks after example turns; a larger count begins with the tasks of a smaller one."""
        of_examples = random.Random(f"{self.name} examples")
        shown = [self._task(of_examples, held_out=False) for _ in range(examples)]
        asked = [self.instruction + "\n" + shown[0][0], *(one for one, _ in shown[1:])]
        turns = [
            ChatMessage(role=role, content=content)
            for question, (_, answer) in zip(asked, shown, strict=True)
            for role, content in (("user", question), ("assistant", answer))
        ]
        rng = random.Random(f"{self.name} {seed} {held_out}")
        found: dict[str, str] = {}
        while len(found) < count:
            asked, reference = self._task(rng, held_out=held_out)
            found.setdefault(asked, reference)
        return [OwnTask((*turns, ChatMessage(role="user", content=asked)), told) for asked, told in found.items()]

    def _task(self, rng: random.Random, *, held_out: bool) -> tuple[str, str]:
        ours = self.templates[-HELD_OUT_TEMPLATES:] if held_out else self.templates[:-HELD_OUT_TEMPLATES]
        values, reference = self.make(rng, held_out)
        return rng.choice(ours).format(**values), reference


def with_wrong_references(tasks: Sequence[OwnTask], share: float, seed: int) -> tuple[list[OwnTask], frozenset[int]]:
    """Give that share of tasks the plausible reference of another; return all, and the numbers of the wrong ones."""
    rng = random.Random(f"wrong {seed}")
    wrong = frozenset(rng.sample(range(len(tasks)), round(share * len(tasks))))
    others = [one.reference for one in tasks]
    return [
        OwnTask(
            one.input,
            rng.choice([other for other in others if other != one.reference]) if n in wrong else one.reference,
        )
        for n, one in enumerate(tasks)
    ], wrong


def _pick(rng: random.Random, values: Sequence[str], held_out: bool) -> str:
    """Draw a value; every third is held out."""
    return rng.choice([one for place, one in enumerate(values) if (place % 3 == 2) == held_out])


def _number(rng: random.Random, low: int, high: int, held_out: bool) -> int:
    """Draw a number; every third is held out."""
    while ((found := rng.randrange(low, high)) % 3 == 2) != held_out:
        pass
    return found


def _json(**fields: str | int) -> str:
    return json.dumps(fields)


def _split(text: str) -> list[str]:
    return text.split(", ")


NAMES = _split(
    "Anna Berg, Tom Hale, Mia Costa, Jon Reed, Lea Novak, Ben Ortiz, Eva Lind, Max Stone, Ida Krause, Sam "
    "Field, Zoe Marsh, Leo Vance, Nina Roth, Paul Grant, Rosa Diaz, Karl Jensen, Olga Petrov, Hugo Blanc, "
    "Sara Cohen, Ivan Maric, Clara West, Otto Weiss, Lucy Hart, Adam Nowak"
)
CITIES = _split(
    "Lisbon, Oslo, Prague, Vienna, Rome, Dublin, Athens, Warsaw, Paris, Riga, Geneva, Bergen, Porto, Malmo, "
    "Turin, Ghent, Cork, Graz, Lyon, Basel, Krakow, Bremen, Leeds, Tartu"
)
PRODUCTS = _split(
    "kettle, printer, headset, router, toaster, monitor, keyboard, blender, camera, speaker, scanner, heater, "
    "lamp, tablet, mixer, charger, shaver, projector, drill, freezer, radio, vacuum, webcam, fan"
)
PROBLEMS = _split(
    "does not turn on, makes a loud noise, gets too hot, lost its warranty card, has a broken cable, arrived "
    "scratched, stops after a minute, shows no picture, smells of smoke, has a missing part, blinks red, "
    "leaks water, is too slow, lost its connection, shuts down at night"
)
COLOURS = _split("red, blue, green, black, white, grey, yellow, brown, purple")
DAYS = _split("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday")
STREETS = _split(
    "Mill Lane, Station Road, Park Avenue, High Street, Church Row, Garden Walk, King Street, River Road, "
    "Forest Way, Harbour Street, Castle Hill, Market Square, Bridge Street, North Road, Chapel Lane"
)
HOSTS = _split("web-1, db-2, cache-3, auth-4, mail-5, queue-6, proxy-7, store-8, index-9, batch-10, feed-11, sync-12")
EVENTS = _split(
    "connection refused, disk almost full, request timed out, user not found, cache was cleared, backup "
    "finished, token expired, job started, queue is empty"
)
LEVELS = _split("INFO, WARNING, ERROR")
UNITS = (("km", "m", 1000), ("kg", "g", 1000), ("h", "min", 60), ("m", "cm", 100), ("l", "ml", 1000), ("min", "s", 60))
TOPICS = {
    "billing": _split(
        "I was charged twice for {product}, my invoice for the {product} is wrong, I paid for no {product}"
    ),
    "delivery": _split("my {product} has not arrived, somebody else got the {product}, where is my {product}"),
    "return": _split("I want to send the {product} back, please take the {product} back, I do not want the {product}"),
    "repair": _split("the {product} is broken, the {product} stopped working, my {product} needs fixing"),
}


def _ticket(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    lists = {"name": NAMES, "city": CITIES, "product": PRODUCTS, "problem": PROBLEMS}
    found = {field: _pick(rng, values, held_out) for field, values in lists.items()}
    return found, _json(**found)


def _order(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    lists = {"colour": COLOURS, "item": PRODUCTS, "city": CITIES, "day": DAYS}
    found = {field: _pick(rng, values, held_out) for field, values in lists.items()}
    count = _number(rng, 2, 60, held_out)
    return {**found, "count": str(count)}, _json(count=count, **found)


def _date(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    day = date(_number(rng, 1960, 2060, held_out), rng.randrange(1, 13), rng.randrange(1, 29))
    short, long = day.strftime("%b"), day.strftime("%B")
    values = {"day": str(day.day), "two": f"{day.day:02}", "month": long, "short": short, "year": str(day.year)}
    return {**values, "number": f"{day.month:02}"}, day.isoformat()


def _address(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    found = {"street": _pick(rng, STREETS, held_out), "city": _pick(rng, CITIES, held_out)}
    number, code = str(_number(rng, 1, 200, held_out)), str(_number(rng, 10_000, 99_999, held_out))
    return {**found, "number": number, "code": code}, _json(
        street=found["street"], number=number, postcode=code, city=found["city"]
    )


def _log_line(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    found = {"host": _pick(rng, HOSTS, held_out), "event": _pick(rng, EVENTS, held_out), "level": rng.choice(LEVELS)}
    code = _number(rng, 1000, 9999, held_out)
    at = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    return {**found, "code": str(code), "time": at}, _json(level=found["level"], host=found["host"], code=code)


def _unit(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    source, target, factor = rng.choice(UNITS)
    number = _number(rng, 2, 100, held_out)
    return {"number": str(number), "source": source, "target": target}, f"{number * factor} {target}"


def _topic(rng: random.Random, held_out: bool) -> tuple[Values, str]:
    label = rng.choice(list(TOPICS))
    said = rng.choice(TOPICS[label]).format(product=_pick(rng, PRODUCTS, held_out))
    return {"said": said, "city": _pick(rng, CITIES, held_out)}, label


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "tickets",
            "Write the support ticket as JSON with name, city, product and problem.",
            "verifier:json",
            64,
            (
                "Hello, this is {name} from {city}. My {product} {problem}.",
                "{name} here, {city}: the {product} {problem}.",
                "My {product} {problem}. Regards, {name}, {city}",
                "I live in {city} and my {product} {problem}. {name}",
                "From: {name} ({city}). The {product} I bought {problem}.",
                "Please help, my {product} {problem}! Write to {name} in {city}.",
                "I am {name}, and the {product} that you sent to {city} {problem}.",
                "A customer in {city}, {name}, says that the {product} {problem}.",
            ),
            _ticket,
        ),
        Family(
            "orders",
            "Write the order as JSON with count, colour, item, city and day.",
            "verifier:json",
            56,
            (
                "Please send {count} {colour} {item}s to {city} by {day}.",
                "We need {count} {item}s in {colour}, in {city} on {day}.",
                "Order for {city}: {count} {colour} {item}s, due {day}.",
                "By {day} we want {count} {colour} {item}s delivered to {city}.",
                "{count} {item}s, {colour}, to {city}. Day: {day}.",
                "Could {count} {colour} {item}s be in {city} on {day}?",
                "Our shop in {city} is out of {item}s: bring {count} {colour} ones on {day}.",
                "On {day} a van goes to {city}; put {count} {colour} {item}s on it.",
            ),
            _order,
        ),
        Family(
            "dates",
            "Write the date as year-month-day.",
            "verifier:graded",
            16,
            (
                "{day} {month} {year}",
                "{month} {day}, {year}",
                "{two}.{number}.{year}",
                "the {day} of {month} {year}",
                "{short} {day} {year}",
                "{year}, {month} {day}",
                "{two} {short} {year}",
                "day {day} of {month} in {year}",
            ),
            _date,
        ),
        Family(
            "addresses",
            "Write the address as JSON with street, number, postcode and city.",
            "verifier:json",
            56,
            (
                "{number} {street}, {code} {city}",
                "{street} {number}, {city} {code}",
                "{city}, {code}, {street} {number}",
                "Send it to {street} {number} in {code} {city}.",
                "{code} {city}: {number} {street}",
                "We live in {city} at {number} {street}, postcode {code}.",
                "Postcode {code}, {city}. House {number}, {street}.",
                "{street}, number {number}; town {city} ({code})",
            ),
            _address,
        ),
        Family(
            "log-lines",
            "Write the log line as JSON with level, host and code.",
            "verifier:json",
            48,
            (
                "{time} {level} [{host}] {event} (code {code})",
                "[{level}] {time} {host}: {event}, code={code}",
                "{host} {time} {code} {level} {event}",
                "{level} {host} {event} #{code} at {time}",
                "{time} host={host} level={level} code={code} msg={event}",
                "{code} | {host} | {level} | {event} | {time}",
                "{event} on {host} ({level} {code}) {time}",
                "{level}: {code}: {event} <{host}> {time}",
            ),
            _log_line,
        ),
        Family(
            "units",
            "Convert it. Write the number and the unit.",
            "verifier:graded",
            16,
            (
                "{number} {source} in {target}",
                "Convert {number} {source} to {target}.",
                "How many {target} are {number} {source}?",
                "{number} {source} = ? {target}",
                "Write {number} {source} as {target}.",
                "What is {number} {source}, told in {target}?",
                "In {target}, please: {number} {source}",
                "{target} for {number} {source}",
            ),
            _unit,
        ),
        Family(
            "topics",
            "Is it about billing, delivery, return or repair? Write one word.",
            "verifier:graded",
            8,
            (
                "Hello, {said}.",
                "From {city}: {said}.",
                "Please help: {said}. I live in {city}.",
                "{said}, can you help?",
                "Dear team, {said}. Greetings from {city}",
                "It is urgent, {said}!",
                "A customer from {city} writes: {said}",
                "Once more: {said}, and nobody in {city} answers.",
            ),
            _topic,
        ),
    )
}
