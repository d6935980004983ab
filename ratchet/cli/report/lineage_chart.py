"""The family tree of the adapters: from the base model to the right, each version with its state and its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratchet.cli.report.markup import Markup, joined, tag
from ratchet.cli.report.score_stats import Mean
from schemas.records.adapter_state import PRIMARY_STATES, AdapterState
from schemas.records.registry import AdapterEntry

COLUMN, ROW = 168.0, 74.0
WIDTH, HEIGHT = 128.0, 52.0
TRUNK = PRIMARY_STATES | {AdapterState.SUPERSEDED}
"""States of versions that are or were the primary."""

Place = tuple[int, int]
"""Column and row."""


def lineage_chart(entries: Sequence[AdapterEntry], live: Mapping[str, Mean]) -> Markup:
    """`entries` in the order of their versions. One whose parent is not among them begins a tree of its own."""
    places = placed(entries)
    width = COLUMN * (1 + max((column for column, _ in places.values()), default=0)) - (COLUMN - WIDTH) + 8
    height = ROW * (1 + max((row for _, row in places.values()), default=0)) - (ROW - HEIGHT) + 8
    edges = [_edge(places[str(e.parent)], places[e.version], e.state) for e in entries if e.parent in places]
    nodes = [_node(places[entry.version], entry, live.get(entry.version)) for entry in entries]
    label = "adapter lineage: " + ", ".join(f"{entry.version} {entry.state}" for entry in entries)
    size = f"0 0 {width:g} {height:g}"
    return tag(
        "svg", *edges, *nodes, view_box=size, width=width, height=height, role="img", aria_label=label, class_="tree"
    )


def placed(entries: Sequence[AdapterEntry]) -> dict[str, Place]:
    """A column for each generation. One child, that became the primary if any did, goes on in its parent's row."""
    known = {entry.version for entry in entries}
    children: dict[str | None, list[AdapterEntry]] = {None: []}
    for entry in entries:
        children.setdefault(entry.parent if entry.parent in known else None, []).append(entry)
    places: dict[str, Place] = {}
    rows = 0
    waiting: list[tuple[AdapterEntry, int, int | None]] = [(entry, 0, None) for entry in reversed(children[None])]
    while waiting:
        entry, column, row = waiting.pop()
        place = places[entry.version] = (column, rows if row is None else row)
        rows = max(rows, place[1] + 1)
        own = sorted(children.get(entry.version, []), key=lambda child: child.state not in TRUNK)
        waiting += [(child, column + 1, None) for child in reversed(own[1:])]
        waiting += [(child, column + 1, place[1]) for child in own[:1]]
    return places


def tone(state: AdapterState) -> str:
    """Good, bad, under way, or over."""
    if state in PRIMARY_STATES:
        return "good"
    if state in (AdapterState.REJECTED, AdapterState.ROLLED_BACK, AdapterState.ABORTED):
        return "bad"
    return "warn" if state in (AdapterState.CANARY, AdapterState.VALIDATED, AdapterState.TRAINED) else "over"


def _edge(parent: Place, child: Place, state: AdapterState) -> Markup:
    x1, y1 = 4 + parent[0] * COLUMN + WIDTH, 4 + parent[1] * ROW + HEIGHT / 2
    x2, y2 = 4 + child[0] * COLUMN, 4 + child[1] * ROW + HEIGHT / 2
    bend = (x2 - x1) / 2
    shape = f"M{x1:g},{y1:g}C{x1 + bend:g},{y1:g} {x2 - bend:g},{y2:g} {x2:g},{y2:g}"
    return tag("path", d=shape, class_=f"edge {'taken' if state in TRUNK else ''}")


def _node(place: Place, entry: AdapterEntry, live: Mean | None) -> Markup:
    x, y = 4 + place[0] * COLUMN, 4 + place[1] * ROW
    score = "" if live is None else f"{live.mean:.3f}"
    return tag(
        "g",
        tag("title", f"{entry.version}: {entry.state.sentence}"),
        tag("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=9, class_="box"),
        joined(
            tag("text", entry.version, x=x + 13, y=y + 22, class_="name"),
            tag("text", score, x=x + WIDTH - 12, y=y + 22, text_anchor="end", class_="tick"),
            tag("circle", cx=x + 17, cy=y + 37, r=4, class_="lamp"),
            tag("text", entry.state.value.replace("_", " "), x=x + 27, y=y + 40.5, class_="state"),
        ),
        class_=f"node {tone(entry.state)}",
    )
