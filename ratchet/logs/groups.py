"""From lines to groups: the lines of one task, each sample once, in the order of its samples.

Lines of several tasks may stand among each other. A kill may have cut a group short, or had a sample logged twice: then
its first line counts. A line without a sample is a group of its own, and ends what was begun of its task.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar


class Sampled(Protocol):
    """A line of the log of interactions, or a view of one."""

    @property
    def task_id(self) -> str: ...
    @property
    def sample(self) -> int | None: ...
    @property
    def group_size(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Line = TypeVar("Line")
Row = TypeVar("Row", bound=Sampled)


class Groups(Generic[Key, Line]):
    """Memory: the groups that are not whole yet."""

    def __init__(self) -> None:
        self._open: dict[Key, dict[int, Line]] = {}

    def add(self, key: Key, sample: int | None, size: int, line: Line) -> list[Line] | None:
        """The group that this line makes whole, if it does."""
        if sample is None:
            self._open.pop(key, None)
            return [line]
        group = self._open.setdefault(key, {})
        group.setdefault(sample, line)
        if len(group) < size:
            return None
        del self._open[key]
        return [group[index] for index in sorted(group)]

    def begun_samples(self, key: Key) -> Mapping[int, Line]:
        """The samples there are of a group that is not whole."""
        return self._open.get(key, {})

    def rest(self) -> Iterator[tuple[Key, list[Line]]]:
        """Those that are not whole."""
        return ((key, [group[index] for index in sorted(group)]) for key, group in self._open.items())


def group_by_task(rows: Iterable[Row], *, incomplete: bool = False) -> Iterator[list[Row]]:
    """Each task's, as soon as it is whole; with `incomplete`, in the end those that never were."""
    groups = Groups[str, Row]()
    for row in rows:
        if (group := groups.add(row.task_id, row.sample, row.group_size, row)) is not None:
            yield group
    if incomplete:
        yield from (group for _, group in groups.rest())
