"""The places of demonstrations in a log: the newest one of each prompt, a correction before a reference. Pure.

In memory: for each prompt a position of the log, and the text of a correction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.records.demonstration import DemonstrationSource

FULL_MARKS = 1.0 - 1e-6
"""Less than 1 by what a weighted sum is off by rounding."""
BY_PEOPLE = ("correction", "approval")
"""Sources that go before all others."""
MOST_PLACES = 8192
"""Their sums have to find room in an adapter's card."""


@dataclass(frozen=True, slots=True)
class DemonstrationPlace:
    """`position` of a line of its task; `text` of what is given, None where the line has it, as reference or edit."""

    position: int
    source: DemonstrationSource
    text: str | None = None


@dataclass(slots=True)
class DemonstrationPlaces:
    """Those of the newest `most` prompts; None where the newest reference is not worth full marks as an answer."""

    most: int = MOST_PLACES
    by_input: dict[int, DemonstrationPlace | None] = field(default_factory=dict)

    def add(self, prompt: bytes, place: DemonstrationPlace | None) -> None:
        """`prompt`: the field `input` of the line."""
        key = hash(prompt)
        known = self.by_input.pop(key, None)
        is_corrected = known is not None and known.source in BY_PEOPLE
        self.by_input[key] = known if is_corrected and (place is None or place.source not in BY_PEOPLE) else place
        if len(self.by_input) > self.most:
            del self.by_input[next(iter(self.by_input))]

    @property
    def places(self) -> list[DemonstrationPlace]:
        return sorted(filter(None, self.by_input.values()), key=lambda place: place.position)

    @property
    def failed(self) -> int:
        """Prompts whose reference is not worth full marks as an answer."""
        return sum(place is None for place in self.by_input.values())
