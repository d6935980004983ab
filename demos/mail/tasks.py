"""The mail task: read a mail, read the rule that it names, write the mail's date into the file that the rule names.

A workspace holds two mails and their rules, one of which nobody asks for. Sentences, ways of writing a date, days and
names of files are dealt into parts as those of `demos/real/tasks.py`, so that what is held out shares none of them with
what a model is trained on. Pure; a seed makes them. Leaves out mails that name no rule, and rules of another kind.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from demos.real.tasks import DATE_FORMS, DAYS, FIRST_DAY, GOODS, Part, part_of, templates, write_day

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
