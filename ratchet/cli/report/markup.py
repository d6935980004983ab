"""HTML and SVG that can't be broken out of: whatever is not `Markup` already is escaped where it is put in.

Texts on the page come from users and models. The page has no script, and its policy (page.py) allows none.
"""

from __future__ import annotations

import re
from html import escape

VOID = frozenset({"meta"})
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
"""Control characters HTML has no place for, and those that turn the direction of the text around them."""

Value = str | float | None


class Markup(str):
    """Text that is markup, made by `tag` or written in our own source."""

    __slots__ = ()


def tag(name: str, /, *children: str | float | None, **attributes: Value) -> Markup:
    """An element. `class_` is the attribute class, `stroke_width` is stroke-width; None is left out."""
    written = "".join(f' {_name(key)}="{text(value)}"' for key, value in attributes.items() if value is not None)
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str | float | None) -> Markup:
    return Markup("".join(text(child) for child in children if child is not None))


def text(value: str | float) -> str:
    """Escaped, for an attribute as for content; Markup stays. Numbers have two decimals at most."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, int | float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    plain = value.encode("utf-8", "replace").decode().replace("\r\n", "\n")
    return escape(UNPRINTABLE.sub("\ufffd", plain), quote=True)


def _name(key: str) -> str:
    return "viewBox" if key == "view_box" else key.rstrip("_").replace("_", "-")
