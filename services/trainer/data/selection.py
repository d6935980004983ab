"""The filters that need to have seen the whole window: the newest scorer, its noise, the main temperature, the age.

Pure. What comes out is what is trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ratchet.logs.groups import deviation, peers
from ratchet.logs.rows import ScorerRow
from schemas.records.adapter_card import TAUGHT_DIGITS, DataRange, DataWindow
from services.trainer.data.demonstrations import Demonstration, Demonstrations
from services.trainer.data.filters import DataPolicy, Reason
from services.trainer.data.journal_scan import KeptGroup, Scan

FEWEST_HELD_OUT, MOST_HELD_OUT = 8, 32
"""Groups: fewer say too little to end a training by."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups to train on, in the order of the log, and the account of all that was left out.

    `held_out`: groups that say while the training runs whether it is of use.
    """

    groups: tuple[KeptGroup, ...]
    counts: dict[str, int]
    lines: int
    bad_lines: int
    temperature: float
    noise: float
    scorer: ScorerRow | None
    ranges: tuple[DataRange, ...]
    demonstrations: Demonstrations = field(default_factory=Demonstrations)
    held_out: tuple[KeptGroup, ...] = ()

    @property
    def samples(self) -> int:
        return sum(len(group.scores) for group in self.groups)

    @property
    def window(self) -> DataWindow:
        times: list[datetime] = [group.at for group in self.groups]
        return DataWindow(
            ranges=self.ranges,
            first=min(times, default=None),
            last=max(times, default=None),
            groups=len(self.groups),
            samples=self.samples,
            taught=tuple(one.input_sha256[:TAUGHT_DIGITS] for one in self.demonstrations.taught),
        )

    def with_demonstrations(self, demonstrations: Demonstrations, *, with_samples: bool) -> Selection:
        """Return the selection with these; without samples, groups are left out and counted so."""
        kept = self.groups if with_samples else ()
        gone = [] if with_samples else self.groups
        left_out = {
            f"groups.{Reason.DEMONSTRATED}": len(gone),
            f"samples.{Reason.DEMONSTRATED}": sum(len(group.scores) for group in gone),
        }
        dropped = {name: count for name, count in (self.counts | left_out).items() if "." in name and count}
        counts = _count_used(self.lines, kept) | demonstrations.counts | dict(sorted(dropped.items()))
        temperature = self.temperature if with_samples else 1.0
        return replace(self, groups=kept, counts=counts, demonstrations=demonstrations, temperature=temperature)

    def with_held_out(self, share: float, least: int) -> Selection:
        """Hold out that share of the groups, by their prompts; none where `least` groups or some held out are not left.

        Groups of the same words stay together. The replay's share of the prompts has the smallest keys, these have the
        largest.
        """
        wanted = min(int(share * len(self.groups)), len(self.groups) - least, MOST_HELD_OUT)
        keys = {group.prompt for group in sorted(self.groups, key=lambda group: -group.prompt)[: max(0, wanted)]}
        held_out = tuple(group for group in self.groups if group.prompt in keys)
        kept = tuple(group for group in self.groups if group.prompt not in keys)
        if len(held_out) < FEWEST_HELD_OUT or len(kept) < least:
            return self
        return replace(self, groups=kept, held_out=held_out, counts=self._counts(kept, Reason.HELD_OUT, held_out))

    def _counts(self, kept: Collection[KeptGroup], reason: Reason, gone: Collection[KeptGroup]) -> dict[str, int]:
        """Count `kept` as used, and `gone` as left out for this reason besides what was left out before."""
        dropped = {name: count for name, count in self.counts.items() if "." in name}
        lost = {f"groups.{reason}": len(gone), f"samples.{reason}": sum(len(group.scores) for group in gone)}
        return _count_used(self.lines, kept) | dict(sorted((dropped | lost).items()))

    def without_doubtful(self, doubtful: Collection[Demonstration]) -> Selection:
        """The selection without these demonstrations, which are counted."""
        left = self.demonstrations.without(doubtful)
        others = {name: count for name, count in self.counts.items() if name not in self.demonstrations.counts}
        return replace(self, counts=others | left.counts, demonstrations=left)

    def without(self, versions: Collection[str]) -> Selection:
        """Their groups left out, and counted as by too different a policy."""
        kept = tuple(group for group in self.groups if group.version not in versions)
        gone = [group for group in self.groups if group.version in versions]
        if not gone:
            return self
        held_out = tuple(group for group in self.held_out if group.version not in versions)
        return replace(self, groups=kept, held_out=held_out, counts=self._counts(kept, Reason.TOO_DIFFERENT, gone))


def select(scan: Scan, policy: DataPolicy) -> Selection:
    """Apply what is left to apply; `scan` is used up."""
    temperature = _main_temperature(scan.groups)
    noise = max(policy.score_noise, scan.noise.deviation(scan.newest_scorer))
    newest = max((group.at for group in scan.groups), default=None)
    kept: list[KeptGroup] = []
    for group in scan.groups:
        if (reason := _reason(group, scan, policy, temperature, noise, newest)) is None:
            kept.append(group)
        else:
            _drop(scan, [group], reason)
    over = max(0, len(kept) - policy.max_groups)
    _drop(scan, kept[:over], Reason.OVER_LIMIT)
    return Selection(
        groups=tuple(kept[over:]),
        counts=_count_used(scan.lines, kept[over:])
        | {name: count for name, count in sorted(scan.dropped.items()) if count},
        lines=scan.lines,
        bad_lines=scan.bad_lines,
        temperature=temperature,
        noise=noise,
        scorer=scan.scorers[scan.newest_scorer] if scan.scorers else None,
        ranges=scan.ranges,
    )


def _main_temperature(groups: Iterable[KeptGroup]) -> float:
    most = Counter(group.temperature for group in groups).most_common(1)
    return most[0][0] if most else 1.0


def _reason(
    group: KeptGroup, scan: Scan, policy: DataPolicy, temperature: float, noise: float, newest: datetime | None
) -> Reason | None:
    if group.scorer != scan.newest_scorer:
        return Reason.OTHER_SCORER
    if group.temperature != temperature:
        return Reason.OTHER_TEMPERATURE
    if policy.max_age_s is not None and newest and newest - group.at > timedelta(seconds=policy.max_age_s):
        return Reason.TOO_OLD
    if not policy.needs_spread:
        return None
    spread = deviation(group.scores, peers(group.made_by, policy.baseline))
    return Reason.BELOW_NOISE if spread <= noise else None


def _drop(scan: Scan, groups: Iterable[KeptGroup], reason: Reason) -> None:
    for group in groups:
        scan.drop("groups", reason)
        scan.drop("samples", reason, len(group.scores))


def _count_used(lines: int, kept: Collection[KeptGroup]) -> dict[str, int]:
    used = {"lines": lines, "groups": len(kept), "samples": sum(len(group.scores) for group in kept)}
    besides = {"feedback": sum(group.feedback for group in kept), "unscorable": sum(group.unscorable for group in kept)}
    return used | {name: count for name, count in besides.items() if count}
