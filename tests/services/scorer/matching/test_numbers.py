from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scorer.matching.numbers import Number, equal, final_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("The answer is 42.", 42),
        ("First 3, then 4: 7", 7),
        ("1,234.5", Fraction("1234.5")),
        ("1,234,567", 1234567),
        ("1, 2", 2),
        ("1,2", 2),
        ("x = -5", -5),
        ("x=−5", -5),
        ("10-5", 5),
        ("-$1,200.50", Fraction("-1200.5")),
        ("$-3", -3),
        (".5", Fraction(1, 2)),
        ("is...42", 42),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        ("2 1/2", Fraction(5, 2)),
        ("-2 1/2", Fraction(-5, 2)),
        ("6.02e23", Fraction(602) * 10**21),
        ("6.02E-3", Fraction("0.00602")),
        ("6.02 × 10^23", Fraction(602) * 10**21),
        (r"6.02 \times 10^{-3}", Fraction("0.00602")),
        ("2*10**3", 2000),
        (r"So \boxed{7} after 9 steps", 7),
        (r"\boxed{1} no, \boxed{\frac{1}{2}}", Fraction(1, 2)),
        (r"-\frac{1}{2}", Fraction(-1, 2)),
        (r"1\frac{1}{2}", Fraction(3, 2)),
        (r"\boxed{1{,}234}", 1234),
        (r"\boxed{7", 7),
        ("#### 18", 18),
        ("5kg", 5),
        ("**12**", 12),
        ("٤٢", 42),
    ],
)
def test_the_final_number(text: str, value: Fraction | int) -> None:
    assert final_number(text) == Number(Fraction(value))


@pytest.mark.parametrize("text", ["12%", "12 %", r"12\%", "12 percent", "about 12.0%"])
def test_a_per_cent_is_a_hundredth(text: str) -> None:
    assert final_number(text) == Number(Fraction(12, 100), percent=True)


@pytest.mark.parametrize("text", ["", "none", "H2O", "v1.2", r"\boxed{x} 7", "1/0", "1e999999999", "9" * 500, "x10"])
def test_no_number(text: str) -> None:
    assert final_number(text) is None


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("3.1415926", "3.1415927", True),
        ("3.14", "3.1415927", False),
        ("1000000001", "1000000000", False),
        ("1000000000.0", "1000000000", True),
        ("0.33333333", "1/3", True),
        ("0.3333", "1/3", False),
        ("0", "0.0000000001", True),
        ("50%", "0.5", True),
        ("0.5", "50%", True),
        ("50", "50%", True),
        ("50%", "50", True),
        ("50%", "5000%", False),
        ("-5", "5", False),
    ],
)
def test_equal(answer: str, reference: str, same: bool) -> None:
    given_number, wanted = final_number(answer), final_number(reference)
    assert given_number is not None
    assert wanted is not None
    assert equal(given_number, wanted, relative=1e-6, absolute=1e-9) is same


NUMERIC_TEXT = st.text("0123456789.,-−+/%eE \\{}^*×$xb", max_size=60) | st.text(max_size=60)


@given(NUMERIC_TEXT)
def test_any_text_has_a_final_number_or_none(text: str) -> None:
    number = final_number(text)
    assert number is None or equal(number, number, relative=0, absolute=0)


@given(st.integers(-(10**12), 10**12))
def test_an_integer_is_found_however_it_is_written(value: int) -> None:
    for text in (str(value), f"{value:,}", f"the total is {value:,}.", rf"$\boxed{{{value}}}$"):
        assert final_number(text) == Number(Fraction(value))


@pytest.mark.parametrize(
    "unit", ["9", "1,", "1 ", "1/", "1.", "-", "1e", "\\frac{1}{", "\\boxed{", "1 1/", "1×10^", "{,}"]
)
def test_a_long_hostile_text_is_read_in_linear_time(unit: str) -> None:
    def seconds(repeats: int) -> float:
        began = time.process_time()
        final_number(unit * repeats)
        return time.process_time() - began

    assert seconds(100_000) < 5.0
