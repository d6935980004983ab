"""The real demo's tasks: mail orders to JSON and dates to ISO, from templates and values. Pure; a seed makes them.

Templates and values are dealt into parts once and for all, by no seed of a run: what is held out shares no sentence, no
way of writing a date, no name, item, number, price or day with what a model is trained on. The text of every task gives
its one right answer. Leaves out days written in figures alone, which may mean two things, and prices of a whole order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar, get_args

from schemas.messages.task import ChatMessage

Part = Literal["train", "live", "held_out"]
Family = Literal["order", "date"]
FAMILIES: tuple[Family, ...] = get_args(Family)
T = TypeVar("T")

DEAL: tuple[Part, ...] = ("train", "held_out", "train", "live", "train")
"""Part of each item of a shuffled list, again and again: three fifths teach, a fifth is live traffic, one measures."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Adam Agnes Alan Alice Amir Ana Anton Aisha Ben Boris Carla Carlos Chloe Clara Colin Dana David Diego Dora "
    "Edith Elena Emil Erik Esther Farah Felix Fiona Frank George Grace Greta Hana Hannah Hugo Ida Igor Irene Isabel "
    "Jack Jana Jonas Judith Julia Karim Kate Kofi Lars Laura Leila Leo Lily Linda Lucas Luis Magda Marco Mark "
    "Martha Max Mei Mila Miriam Mona Nadia Nils Nina Noah Nora Olga Oscar Paul Paula Pedro Petra Priya Rafael Ravi "
    "Rosa Sam Sara Sofia Stefan Susan Tariq Teresa Theo Tina Vera Victor Walter Wendy Yuki Yusuf Zara Zoe"
)
SURNAMES = _words(
    "Abbott Adler Ahmed Bailey Baker Barnes Becker Bennett Berg Brooks Brown Burns Carter Castro Chen Clarke Cole "
    "Cooper Costa Cruz Dale Davies Diaz Dixon Doyle Ellis Evans Fischer Fisher Fleming Flores Ford Foster Garcia "
    "Gibson Gomez Grant Green Gupta Hansen Harris Hayes Hill Holm Hughes Hunt Ito Ivanov Jansen Johnson Jones Kaya "
    "Keller King Klein Kovacs Kumar Lane Larsen Lee Lewis Lindgren Lopez Mason Meyer Miller Moore Moreau Morgan "
    "Mueller Murphy Nash Novak Nielsen Okoro Olsen Owens Park Parker Patel Perez Price Quinn Reyes Rossi Russo "
    "Santos Sato Schmidt Shaw Silva Singh Stone Suzuki Tanaka Turner Vargas Wagner Walker Wang Weber White Wood "
    "Young Zhang"
)
KINDS = _words(
    "big black blue brass brown cheap clay copper cotton folding glass golden gray green heavy large leather light "
    "linen long metal new paper pink plain plastic purple red round rubber short silver small soft square steel "
    "striped tall tin warm white wide wooden yellow"
)
GOODS = _words(
    "backpack bag ball banner basket belt bench blanket bottle bowl box bucket button cabinet camera candle carpet "
    "chair clock coat cup curtain cushion desk doll door drum flag flute fork frame glove guitar hammer hat helmet "
    "hose jacket jar jug kettle kite ladder lamp lantern lock mattress mirror mug necklace notebook pan pencil "
    "pillow pipe plate poster pot printer puppet ring robe rope ruler scarf shawl shelf shirt shovel sign skirt "
    "sofa spoon stamp stool suitcase table teapot tent towel toy tray truck vase wagon wallet wheel window"
)
MONTHS = _words("January February March April May June July August September October November December")
WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
NUMBERS = _words("two three four five six seven eight nine ten eleven twelve")
"""The numbers that people write in words."""
DATE_FORMS: dict[Part, tuple[str, ...]] = {
    "train": (
        "{month} {d}, {y}",
        "{dth} {month} {y}",
        "the {dth} of {month} {y}",
        "{month} {dth} {y}",
        "{weekday}, {month} {d}, {y}",
        "{weekday}, {d} {mon} {y}",
        "{weekday} the {dth} of {month} {y}",
        "{mon} {d}, {y}",
        "{d}. {month} {y}",
        "{d} {month}, {y}",
        "{d} {mon} {y}",
        "{weekday} {d} {month} {y}",
        "{wkd}, {month} {d}, {y}",
    ),
    "live": (
        "{d} {month} {y}",
        "the {dth} of {month}, {y}",
        "{month} the {dth}, {y}",
        "{mon} {dth} {y}",
        "{wkd} {mon} {d}, {y}",
    ),
    "held_out": (
        "{month} {d} {y}",
        "{month} {dth}, {y}",
        "{wkd}, {d} {mon} {y}",
        "{dth} of {month} {y}",
        "{weekday}, the {dth} of {month}, {y}",
    ),
}
"""Ways of natural English, all with the month in letters and the year in full."""
FIRST_DAY, DAYS = date(1960, 1, 1), tuple(range(28_000))
PIECES = (2, *range(4, 11), *range(12, 100))
PRICES = tuple(range(200, 9_995, 5))
"""Pieces of an order, but for those of the examples; prices in cents."""
IN_WORDS = len(NUMBERS) + 1

INSTRUCTION: dict[Family, str] = {"order": "Orders to JSON.", "date": "Dates to JSON."}
EXAMPLES: dict[Family, tuple[tuple[str, str], ...]] = {
    "order": (
        (
            "Hi, please send me 3 teak fans at $12.48 each. Anna Bell",
            '{"name": "Anna Bell", "item": "teak fan", "quantity": 3, "price": 12.48}',
        ),
        (
            "Tom Reed would buy eleven oak barrels for 40.31 dollars apiece.",
            '{"name": "Tom Reed", "item": "oak barrel", "quantity": 11, "price": 40.31}',
        ),
    ),
    "date": (
        ("See you at the beach on July 4, 1957.", '{"date": "1957-07-04"}'),
        ("It rained on the 30th of Nov 2039.", '{"date": "2039-11-30"}'),
    ),
}
"""Turns before every question. Their sentences and values are in no part."""


@dataclass(frozen=True, slots=True)
class RealTask:
    """`template` and `values` are what it is made of; `answer` is JSON, the one right value."""

    family: Family
    template: str
    values: tuple[str, ...]
    text: str
    answer: str

    @property
    def input(self) -> tuple[ChatMessage, ...]:
        """Chat turns: the instruction, the family's examples, the question."""
        turns = [ChatMessage(role="system", content=INSTRUCTION[self.family])]
        for question, answer in EXAMPLES[self.family]:
            turns += [ChatMessage(role="user", content=question), ChatMessage(role="assistant", content=answer)]
        return (*turns, ChatMessage(role="user", content=self.text))

    @property
    def criteria(self) -> str:
        """A JSON Schema for the scorer."""
        return SCHEMAS[self.family]


def _schema(**kinds: str) -> str:
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    return json.dumps(
        {"type": "object", "properties": properties, "required": list(kinds), "additionalProperties": False}
    )


SCHEMAS: dict[Family, str] = {
    "order": _schema(name="string", item="string", quantity="integer", price="number"),
    "date": _schema(date="string"),
}


def real_tasks(part: Part, seed: int) -> Iterator[RealTask]:
    """Yield orders and dates by turns, without end; every template of the part comes before one comes again."""
    rng = random.Random(f"{part} {seed}")
    orders, dates = _again(part_of(templates("order"), part), rng), _again(part_of(templates("date"), part), rng)
    while True:
        yield _order(next(orders), part, rng)
        yield _date(next(dates), part, rng)


def distinct_tasks(part: Part, seed: int, number: int) -> list[RealTask]:
    """Return so many tasks, no text twice."""
    drawn: dict[str, RealTask] = {}
    for task in real_tasks(part, seed):
        drawn.setdefault(task.text, task)
        if len(drawn) == number:
            break
    return list(drawn.values())


@cache
def templates(family: Family) -> tuple[str, ...]:
    """The sentences of a family, in which values are put."""
    return tuple(Path(__file__).with_name(f"{family}s.txt").read_text().splitlines())


@cache
def part_of(items: tuple[T, ...], part: Part) -> tuple[T, ...]:
    """Those of the items that were dealt to the part: disjoint, and the same in every run."""
    shuffled = list(items)
    random.Random(f"the deal of {len(items)}").shuffle(shuffled)
    return tuple(item for position, item in enumerate(shuffled) if DEAL[position % len(DEAL)] == part)


def _again(items: Sequence[T], rng: random.Random) -> Iterator[T]:
    while True:
        yield from rng.sample(items, len(items))


def _order(template: str, part: Part, rng: random.Random) -> RealTask:
    def draw(items: tuple[T, ...]) -> T:
        chosen: T = rng.choice(part_of(items, part))
        return chosen

    name = f"{draw(FIRST_NAMES)} {draw(SURNAMES)}"
    item = f"{draw(KINDS)} {draw(GOODS)}"
    cents = draw(PRICES)
    price = f"{cents // 100}.{cents % 100:02}"
    pieces = rng.choice([n for n in part_of(PIECES, part) if n <= IN_WORDS or "{words}" not in template])
    words = NUMBERS[pieces - 2] if pieces <= IN_WORDS else ""
    text = template.format(name=name, item=item, items=plural(item), n=pieces, words=words, price=price)
    answer = f'{{"name": "{name}", "item": "{item}", "quantity": {pieces}, "price": {price}}}'
    return RealTask("order", template, (*name.split(), *item.split(), str(pieces), price), _sentence(text), answer)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def plural(item: str) -> str:
    """Return the plural of one of the goods above."""
    if item.endswith(("shelf", "scarf")):
        return f"{item[:-1]}ves"
    return item + ("es" if item.endswith(("ch", "sh", "x", "s")) else "s")


def _date(template: str, part: Part, rng: random.Random) -> RealTask:
    form = rng.choice(DATE_FORMS[part])
    day = FIRST_DAY + timedelta(rng.choice(part_of(DAYS, part)))
    text = template.format(date=write_day(day, form))
    return RealTask("date", template, (form, day.isoformat()), _sentence(text), f'{{"date": "{day}"}}')


def write_day(day: date, form: str) -> str:
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    return form.format(
        d=day.day,
        dth=f"{day.day}{_ending(day.day)}",
        month=month,
        MONTH=month.upper(),
        mon=month[:3],
        weekday=weekday,
        wkd=weekday[:3],
        y=day.year,
    )


def _ending(number: int) -> str:
    return "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
