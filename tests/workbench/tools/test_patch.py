"""Unified diffs against texts: what difflib writes is what is applied."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quick import rounds
from workbench.tools.operation import ToolError
from workbench.tools.patch import apply_to_text, parse

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "-- x\n", "+y\n", " z\n", "@@\n"]), max_size=12)


@given(LINES, LINES, st.integers(0, 3))
def test_a_diff_takes_one_text_to_the_other(before: list[str], after: list[str], context: int) -> None:
    patch = "".join(difflib.unified_diff(before, after, "a/x", "b/x", n=context))
    if not patch:
        return
    (file,) = parse(patch)

    assert apply_to_text("".join(before), file) == "".join(after)


def test_lines_that_moved_are_found() -> None:
    (file,) = parse("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n")

    assert apply_to_text("zero\n" * rounds(50) + "one\ntwo\n", file) == "zero\n" * rounds(50) + "one\nTWO\n"


def test_a_file_without_a_newline_at_its_end() -> None:
    (file,) = parse(
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n"
    )

    assert apply_to_text("one", file) == "two"


def test_hunks_far_from_where_they_say_are_found_in_linear_time() -> None:
    """Each compare of these lines at each place in turn took hours."""
    before = "x\n" * 400_000
    hunk = "".join([" x\n"] * 100_000)
    (file,) = parse(f"--- a/x\n+++ b/x\n@@ -1,100001 +1,100001 @@\n{hunk}-y\n+z\n")

    assert apply_to_text(f"{before}y\n", file) == f"{before}z\n"


def test_many_hunks_that_are_far_from_where_they_say_are_refused() -> None:
    before = "".join(f"{one}\n" for one in range(400_000))
    (file,) = parse("--- a/x\n+++ b/x\n" + "".join(f"@@ -400000 +1 @@\n-{one}\n+x\n" for one in range(1000)))

    with pytest.raises(ToolError, match="correct their numbers"):
        apply_to_text(before, file)
