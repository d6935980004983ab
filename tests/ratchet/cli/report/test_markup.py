"""Whatever a text says, it stays a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.cli.report.markup import UNPRINTABLE, Markup, joined, tag
from tests.ratchet.cli.report.reading_html import ReadPage

ANY_TEXT = st.text(alphabet=st.characters(), max_size=60)
HOSTILE = [
    "</script><script>alert(1)</script>",
    '" onload="alert(1)',
    "' onmouseover='alert(1)",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "a\x00b\u202ec",
    "\ud800 alone",
]


def seen(text: str) -> str:
    """As a reader sees it: nothing but what can't be printed is changed."""
    return UNPRINTABLE.sub("\ufffd", text.encode("utf-8", "replace").decode().replace("\r\n", "\n"))


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_comes_back_as_it_was_and_makes_no_element(content: str, attribute: str) -> None:
    page = ReadPage(tag("p", tag("b", content, title=attribute)))

    assert [name for name, _ in page.elements] == ["p", "b"]
    assert page.text == seen(content)
    assert page.all("title") == [seen(attribute)]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    page = ReadPage(joined(tag("td", text), tag("svg", tag("title", text), aria_label=text)))

    assert page.tags == {"td", "svg", "title"}
    assert page.text == seen(text) * 2


def test_what_can_t_be_printed_is_shown_as_such() -> None:
    assert tag("b", "a\r\nb\rc\x00\t\u202ed") == "<b>a\nb\ufffdc\ufffd\t\ufffdd</b>"


def test_markup_is_put_in_as_it_is_and_names_are_written_as_svg_has_them() -> None:
    made = tag("svg", Markup("<g></g>"), None, view_box="0 0 1 1", stroke_width=1.5, class_="a", fill=None)

    assert made == '<svg viewBox="0 0 1 1" stroke-width="1.5" class="a"><g></g></svg>'


def test_numbers_are_short() -> None:
    assert tag("circle", cx=1 / 3, cy=2.0, r=10) == '<circle cx="0.33" cy="2" r="10"></circle>'
