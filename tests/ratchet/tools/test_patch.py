"""Unified diffs against texts: what difflib writes is what is applied."""

from __future__ import annotations

import difflib

from hypothesis import given
from hypothesis import strategies as st

from ratchet.tools.patch import applied, parse
from tests.quick import rounds

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "-- x\n", "+y\n", " z\n", "@@\n"]), max_size=12)


@given(LINES, LINES, st.integers(0, 3))
def test_a_diff_takes_one_text_to_the_other(before: list[str], after: list[str], context: int) -> None:
    patch = "".join(difflib.unified_diff(before, after, "a/x", "b/x", n=context))
    if not patch:
        return
    (file,) = parse(patch)

    assert applied("".join(before), file) == "".join(after)


def test_lines_that_moved_are_found() -> None:
    (file,) = parse("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n")

    assert applied("zero\n" * rounds(50) + "one\ntwo\n", file) == "zero\n" * rounds(50) + "one\nTWO\n"


def test_a_file_without_a_newline_at_its_end() -> None:
    (file,) = parse(
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n"
    )

    assert applied("one", file) == "two"
