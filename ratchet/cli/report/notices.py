"""What stands where there is nothing yet, and what says that there is more than is shown."""

from __future__ import annotations

from ratchet.cli.report.markup import Markup, tag


def empty(sentence: str, command: str) -> Markup:
    """A card that says what to type."""
    return tag("div", tag("p", f"{sentence} ", tag("code", command), class_="empty"), class_="card")


def older(count: int, what: str, command: str) -> Markup | None:
    """None where nothing is left out."""
    return (
        tag("p", f"{count:,} older {what} are not on this page: ", tag("code", command), class_="note")
        if count
        else None
    )
