"""The demo of `ratchet demo --agent`: a real model works as an agent with tools, over several turns, in sandboxes.

It reads a mail, reads the rule that the mail names, and writes the mail's date into the file that the rule names. A
workspace holds two mails and their rules, one of which nobody asks for. Sentences, ways of writing a date, days and
names of files are dealt into parts as those of `demos/real/tasks.py`, so that what is held out shares none of them with
what a model is trained on. Left out: mails that name no rule, and rules of another kind.

Its program, its sandboxes and its figures are those of `demos/tools/`; the model and how it is trained are those of
`demos/real/`. What a promotion must prove is as in any fleet.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from demos.books import Measured
from demos.demo import Demo, Sizes
from demos.real import demo as real_demo
from demos.real.demo import MODEL, TEMPERATURE
from demos.real.tasks import DATE_FORMS, DAYS, FIRST_DAY, GOODS, Part, part_of, templates, write_day
from demos.story import DemoTurn
from demos.time_left import Pace
from demos.tools import in_sandboxes
from demos.tools.agent import AGENT
from demos.tools.demo import Figures, conversations_of
from ratchet.experiments.gain import gain
from ratchet.logs.rows import AnswerRow
from ratchet.models.fetch import fetch
from ratchet.models.known import KNOWN
from schemas.messages.workspace import Workspace
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace

FORMS: dict[Part, tuple[str, ...]] = {
    part: tuple(form for form in forms if form.startswith("{mon")) for part, forms in DATE_FORMS.items()
}
"""Ways of writing a date that begin with the month: of the others the model finds hardly any at first."""
MAIL, RULE, TARGET = 'Mail "{mail}".', 'Rule: "{rule}".', 'Write it to "{target}".'
"""Sentences: the question, the end of a mail, and the whole of a rule."""


def _example(mail: str, sentence: str, rule: str, target: str, day: str) -> tuple[dict[str, str], ...]:
    """Return the turns of a mail that was done right."""
    asked = (MAIL.format(mail=mail), f"{sentence} {RULE.format(rule=rule)}", TARGET.format(target=target))
    called = ({"read": mail}, {"read": rule}, {target: day})
    pairs = zip(asked, called, strict=True)
    return tuple(turn for user, call in pairs for turn in (_turn("user", user), _turn("assistant", json.dumps(call))))


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


EXAMPLES: tuple[dict[str, str], ...] = (
    _turn("system", "File mails."),
    *_example("plum", "See you at the beach on July 4, 1957.", "oak", "fig", "1957-07-04"),
    *_example("pear", "It rained on November 30th 2039.", "elm", "lime", "2039-11-30"),
    *_example("fern", "On March 9 1958 the shop was closed.", "ash", "kiwi", "1958-03-09"),
    *_example("sage", "We moved in on October 21st, 2041.", "yew", "olive", "2041-10-21"),
)
"""Turns before every question: three calls to each mail. Their sentences and values are in no part."""


@dataclass(frozen=True)
class MailTask:
    """`sentence` and `form` are what its mail is made of; `day` is the mail's, in ISO."""

    sentence: str
    form: str
    day: str
    mail: str
    rule: str
    target: str
    files: Mapping[str, str] = field(hash=False)

    @property
    def question(self) -> str:
        return MAIL.format(mail=self.mail)

    @property
    def input(self) -> str:
        return self.question

    @cached_property
    def values(self) -> frozenset[str]:
        """Return what no task of another part may have: the names of its files, and its day."""
        return frozenset((*self.files, self.target, self.day))


def mail_tasks(part: Part, seed: str) -> Iterator[MailTask]:
    """Yield tasks without end; every sentence of a part comes before one comes again."""
    rng = random.Random(f"{part} {seed}")
    names, days, sentences = part_of(GOODS, part), part_of(DAYS, part), part_of(templates("date"), part)
    while True:
        for sentence in rng.sample(sentences, len(sentences)):
            mail, rule, other_mail, other_rule, target, other_target = rng.sample(names, 6)
            form, day = rng.choice(FORMS[part]), FIRST_DAY + timedelta(rng.choice(days))
            other_day = FIRST_DAY + timedelta(rng.choice(days))
            files = {
                mail: _mail(sentence, write_day(day, form), rule),
                rule: TARGET.format(target=target),
                other_mail: _mail(rng.choice(sentences), write_day(other_day, form), other_rule),
                other_rule: TARGET.format(target=other_target),
            }
            in_order = {name: files[name] for name in sorted(files)}
            yield MailTask(sentence, form, day.isoformat(), mail, rule, target, in_order)


def distinct_tasks(part: Part, seed: str, number: int) -> list[MailTask]:
    """Return so many, no mail twice."""
    drawn: dict[str, MailTask] = {}
    for task in mail_tasks(part, seed):
        drawn.setdefault(task.files[task.mail], task)
        if len(drawn) == number:
            break
    return list(drawn.values())


def _mail(sentence: str, date: str, rule: str) -> str:
    text = f"{sentence.format(date=date)} {RULE.format(rule=rule)}"
    return text[0].upper() + text[1:]


SIZES = Sizes(tasks=48, samples=2, turns=1, groups=96, no_turn_after=math.inf, timeout=600.0)
GROUP = 4
MAX_TOKENS = 36
MOST_CALLS = 4
GOLDEN_TASKS = 12
RUNS_AT_ONCE = 16
PROMISED = 0.4
EXAMPLES_SHOWN = 4
OFFERED: Mapping[str, Any] = {"examples": EXAMPLES, "most_calls": MOST_CALLS}


@dataclass(frozen=True, kw_only=True)
class MailDemo(Demo[MailTask]):
    folder, prefix, source = "demo-agent", "agent", "ratchet demo --agent"
    golden_samples = 2
    proof_samples = 1  # a task is one observation, however many rollouts it has
    training_s = 3600.0
    quiet_s = 20.0
    next_command = "ratchet log show TASK"

    @property
    def group(self) -> int:
        return GROUP

    @property
    def pace(self) -> Pace:
        return Pace(start_s=30.0, answer_s=0.8, training_start_s=60.0, trained_s=3.0, proved_s=240.0)

    def model(self, models: Path, say: Callable[[str], None], heading: Callable[[str], None]) -> str:
        fetch(KNOWN[MODEL], models, say)
        return MODEL

    def options(self, options: FleetOptions, place: FleetPlace) -> FleetOptions:
        return replace(options, scorer="tests", programs=str(place.root / in_sandboxes.PROGRAMS))

    def settings(self, place: FleetPlace) -> dict[str, str]:
        of_model = real_demo.settings(self.seed) | {"RATCHET_MAX_TOKENS": str(MAX_TOKENS)}
        return of_model | in_sandboxes.settings(place.root, RUNS_AT_ONCE)

    def files(self) -> Mapping[str, str]:
        return {in_sandboxes.PROGRAMS: in_sandboxes.programs(AGENT, OFFERED, seconds=600)}

    def held_out(self) -> list[MailTask]:
        return distinct_tasks("held_out", str(self.seed), self.sizes.tasks)

    def golden(self) -> list[MailTask]:
        """Return tasks of the part that is asked live."""
        return distinct_tasks("live", f"golden {self.seed}", GOLDEN_TASKS)

    def learning(self) -> Iterator[MailTask]:
        return mail_tasks("train", str(self.seed))

    def live(self) -> Iterator[MailTask]:
        return mail_tasks("live", str(self.seed))

    def fields(self, question: MailTask) -> dict[str, Any]:
        return {
            "input": question.input,
            "task_type": "mails",
            "workspace": Workspace(files=dict(question.files)),
            "criteria": criteria(question),
        }

    def is_right(self, question: MailTask, row: AnswerRow) -> bool:
        """Tell whether the file that the rule names holds the day, and no other file changed."""
        return row.artifact is not None and in_sandboxes.changed_by(row.artifact.patch) == {
            question.target: question.day
        }

    def answer(self, row: AnswerRow) -> str:
        return in_sandboxes.outcome_of(row)

    def label(self, question: MailTask) -> str:
        return f"{question.files[question.mail]} / {question.files[question.rule]}"

    def figures(self, measured: Mapping[str, Measured[MailTask]], turns: Sequence[DemoTurn], adapters: Path) -> Figures:
        before, after = measured["before"], measured["after"]
        return Figures(
            seed=self.seed,
            sandboxed=True,
            gain=gain(self.right_answers(before), self.right_answers(after)),
            conversations=conversations_of(turns, adapters),
            examples=self.examples(list(before.tasks.values())[:EXAMPLES_SHOWN], before, after),
            held_out=f"mails whose sentences, days and names no training saw, at temperature {TEMPERATURE:g}",
            promised=PROMISED,
            outside=sum(row.artifact is None for one in (before, after) for _, row in one.samples()),
        )


def criteria(task: MailTask) -> str:
    names = " ".join(task.files)
    left = "\n".join([*sorted([*task.files, task.target]), "".join(task.files.values())])
    new = f'for f in *; do case " {names} " in *" $f "*) ;; *) cat "$f" ;; esac; done'
    return in_sandboxes.two_cases((f"ls && cat {names}", left), (new, task.day))
