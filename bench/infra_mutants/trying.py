"""Renders a stack with a mistake in the program's source, and says whether anything finds it."""

from __future__ import annotations

import ast
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

from bench.infra_mutants.mutating import INFRA, Mutant, source_of
from bench.infra_mutants.stacks import configurations
from infra.checks import findings
from infra.render.manifests import manifests
from infra.render.recording import RENDERED, Recording, record

TIME_LIMIT_S = 60
"""A mistake may make the program wait for ever."""
PACKAGE = "infra"
RENAMED = "renamed"


class Verdict(StrEnum):
    """The end of a mutant."""

    REFUSED = "refused"
    """The program raised an error."""
    FOUND = "found"
    """A check found a fault."""
    SAME = "same"
    """Changes nothing that is rendered in any stack."""
    SURVIVED = "survived"
    """Changes something, and nothing found it."""


@dataclass(frozen=True, slots=True)
class Tried:
    mutant: Mutant
    verdict: Verdict
    said: str
    changed: tuple[str, ...] = ()
    """Paths in the manifests that a survivor changes, such as `Deployment/judge spec.replicas`; `renamed` for one that
    changes nothing but the name of an object, for all who use it."""


class Trial:
    """Renders each stack once without a mistake, to compare with."""

    def __init__(self) -> None:
        self._configurations = configurations()
        self._good = {name: _flat(record("prod", one)) for name, one in self._configurations.items()}

    def run(self, mutant: Mutant) -> Tried:
        changed: dict[str, None] = {}
        for name, configuration in self._configurations.items():
            try:
                with _at_most(TIME_LIMIT_S), program_with(mutant.module, source_of(mutant)) as program:
                    recording = record("prod", configuration, program=program)
                    differences = _differences(self._good[name], _flat(recording))
                    again = f"{RENDERED}again-"
                    other = record("prod", configuration, again, program) if differences and name == "dev" else None
            except Exception as error:
                return Tried(mutant, Verdict.REFUSED, f"{type(error).__name__}: {error}"[:200])
            if differences and (faults := _faults(recording, other)):
                return Tried(mutant, Verdict.FOUND, faults[0])
            changed |= dict.fromkeys(
                _but_for_the_name(mutant, self._good[name], _flat(recording)) if differences else ()
            )
        return Tried(mutant, Verdict.SURVIVED if changed else Verdict.SAME, "", tuple(changed))


def _faults(recording: Recording, other: Recording | None) -> list[str]:
    try:
        return [str(fault) for fault in findings(manifests(recording), manifests(other) if other else None)]
    except Exception as error:  # infra.render ends with it: nobody deploys that
        return [f"it can't be checked: {type(error).__name__}: {error}"]


@contextmanager
def program_with(module: str, source: ast.Module) -> Iterator[Callable[[], None]]:
    """The program with another source of one of its modules. The checks keep the modules they were imported with."""
    code = compile(source, str(INFRA / f"{module}.py"), "exec")
    finder = _Finder(f"{PACKAGE}.{module}", code)
    main = ast.parse((INFRA / "__main__.py").read_text("utf-8"))
    entry = code if module == "__main__" else compile(main, str(INFRA / "__main__.py"), "exec")

    def run() -> None:
        _forget_modules()
        exec(entry, {"__name__": "__main__", "__file__": str(INFRA / "__main__.py")})

    kept = _forget_modules()
    sys.meta_path.insert(0, finder)
    try:
        yield run
    finally:
        sys.meta_path.remove(finder)
        _forget_modules()
        sys.modules |= kept
        for name, one in kept.items():
            setattr(sys.modules[PACKAGE], name.rpartition(".")[2], one)


def _forget_modules() -> dict[str, ModuleType]:
    """Have the program's modules imported anew. Returns those that were there."""
    stems = [path.stem for path in INFRA.glob("*.py") if path.stem not in ("__init__", "__main__")]
    for stem in stems:
        if hasattr(sys.modules[PACKAGE], stem):  # `from infra import probes` would take it
            delattr(sys.modules[PACKAGE], stem)
    return {name: sys.modules.pop(name) for stem in stems if (name := f"{PACKAGE}.{stem}") in sys.modules}


class _Finder:
    """Finds one module, and has it run other code than its file's."""

    def __init__(self, name: str, code: Any) -> None:
        self._name, self._code = name, code

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, origin=self._code.co_filename) if name == self._name else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self._code.co_filename
        exec(self._code, module.__dict__)


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"not rendered within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    # Again and again: the first may end one of many coroutines, and the others are waited for.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _flat(recording: Recording) -> dict[str, str]:
    """Each value under its path, with how each object is registered, and what a person is shown."""
    flat = {f"output {name}": repr(value) for name, value in recording.outputs.items()}
    for one in recording.resources:
        content = one.properties
        metadata = content.get("metadata")
        name = f"{content['kind']}/{metadata['name']}" if metadata and "kind" in content else one.urn
        state = {"content": content, "secret": sorted(one.secret), "protected": one.protected}
        flat |= {f"{name} {path}": value for path, value in _leaves(state | {"after": sorted(one.waits_for)}, "")}
    return flat


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path.removeprefix(".content."), repr(value)


def _but_for_the_name(mutant: Mutant, good: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the differences that are left if a word in an object's name is read as the other word, wherever it is."""
    names = {path.partition(" ")[0].partition("/")[2] for path in good}
    if not re.fullmatch(r"[\w.-]+", mutant.word or "") or not any(str(mutant.word) in name for name in names):
        return _differences(good, other)
    one, two = (_with_word(flat, mutant) for flat in (good, other))
    return [RENAMED, *_differences(one, two)]


def _with_word(flat: Mapping[str, str], mutant: Mutant) -> dict[str, str]:
    old, new = str(mutant.word), str(mutant.other)
    return {path.replace(old, new): value.replace(old, new) for path, value in flat.items()}


def _differences(good: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [path for path in sorted(good.keys() | other.keys()) if good.get(path) != other.get(path)]
