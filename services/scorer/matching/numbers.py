"""The final number of a text, as an exact value: 1,234.5 · 3/4 · 2 1/2 · 12 % · 6.02e23 · 6.02 × 10^23 · \\boxed{7}.

English notation (decimal point, commas between thousands). Linear time on any text. No units, no roots, no arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 400
"""A number with more digits, or a larger exponent, is taken for no number: it could only be meant to exhaust us."""

_DECIMAL = r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)(?:\.\d++)?|(?<![\w.])\.\d++"
_NUMBER = re.compile(
    rf"""
    (?<!\w)(?<!\w\.)
    (?P<sign>(?<![\w)\]}}])[-−+]\s?)?  (?:[$€£¥]\s?)?
    (?P<whole>(?<![,.\d])\d++[ ](?=\d++\s?/\s?\d))?
    (?P<value>{_DECIMAL})
    (?:\s?/\s?(?P<denominator>\d++(?:\.\d++)?))?
    (?:[eE](?P<e>[-+]?\d++)(?!\w) | \s?(?:[×x*·]|\\times|\\cdot)\s?10\s?(?:\^|\*\*)\s?\{{?(?P<power>[-−+]?\d++)\}}?)?
    (?P<percent>\s?(?:%|٪|％|percent\b))?
    """,
    re.VERBOSE,
)
_FRAC = re.compile(r"\\[dtc]?frac\s?\{\s?([-−+]?[\d.,]++)\s?\}\s?\{\s?([\d.,]++)\s?\}")
_SPACING = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " "})


@dataclass(frozen=True, slots=True)
class Number:
    """`value` of `12 %` is 12/100."""

    value: Fraction
    percent: bool = False


def final_number(text: str) -> Number | None:
    """The last number in the last `\\boxed{…}`, or without a box the last of the text; None if there is none."""
    box = _last_box(text)
    last = None
    for match in _NUMBER.finditer(_plain(text if box is None else box)):
        last = match
    return None if last is None else _read(last)


def equal(answer: Number, reference: Number, *, relative: float, absolute: float) -> bool:
    """Integers must be equal; other numbers may differ by `relative` × |reference| or by `absolute`.

    Where only one of the two has a percent sign, the other may mean the share (0.5 = 50 %) or the per cent (50 = 50 %).
    """
    readings = [(answer.value, reference.value)]
    if answer.percent != reference.percent:
        readings.append((_per_cent(answer), _per_cent(reference)))
    return any(_near(given, wanted, relative, absolute) for given, wanted in readings)


def _per_cent(number: Number) -> Fraction:
    return number.value * 100 if number.percent else number.value


def _near(given: Fraction, wanted: Fraction, relative: float, absolute: float) -> bool:
    if given.denominator == wanted.denominator == 1:
        return given == wanted
    return abs(given - wanted) <= max(Fraction(relative) * abs(wanted), Fraction(absolute))


def _plain(text: str) -> str:
    """LaTeX and typographic spacing as plain notation."""
    for mark, meaning in (("{,}", ","), ("\\,", ""), ("\\!", ""), ("\\%", "%"), ("\\$", "$")):
        text = text.replace(mark, meaning)
    text = re.sub(r"(?<=\d)(?=\\[dtc]?frac)", " ", text.translate(_SPACING))
    return _FRAC.sub(r"\1/\2", text)


def _last_box(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed")
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin + 1 : position]
    return text[begin + 1 :]


def _read(match: re.Match[str]) -> Number | None:
    parts = match.groupdict()
    exponent = (parts["e"] or parts["power"] or "0").replace("−", "-")
    if len(match.group()) > MAX_DIGITS or abs(int(exponent)) > MAX_DIGITS:
        return None
    value = Fraction(parts["value"].replace(",", ""))
    if parts["denominator"]:
        if not Fraction(parts["denominator"]):
            return None
        value /= Fraction(parts["denominator"])
    value = (value + int(parts["whole"] or 0)) * Fraction(10) ** int(exponent)
    negative = (parts["sign"] or "").strip() in ("-", "−")
    percent = parts["percent"] is not None
    return Number((-value if negative else value) / (100 if percent else 1), percent)
