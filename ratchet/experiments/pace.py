"""The pace of an experiment to which only the minimum age is missing: what is left of its budget lasts until then.

Pure. It chooses how many units are admitted, by time alone; the arms and the evidence are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

SPREAD = 0.9
"""Part of the units left that is spread over the time left. The others are kept: the verdict needs a unit that is old
enough, and fleets that pool their evidence admit a few too many, because each sees the others' units late."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Spreads the units after the first `units` evenly from one moment to another (seconds since the epoch)."""

    units: int
    max_units: int
    since: float
    until: float

    def allows(self, enrolled: int, at: float) -> bool:
        """True if one more unit may follow the `enrolled` ones at this moment."""
        if not self.since <= at < self.until:  # before: a clock that was set back must not hold up the experiment
            return True
        elapsed = (at - self.since) / (self.until - self.since)
        return enrolled < self.units + SPREAD * (self.max_units - self.units) * elapsed
