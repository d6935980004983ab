"""The rules of the house: what is counted, named and imported. `make lint` has style and types."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.house import (
    SLACK,
    bad_words,
    choices,
    files_of,
    folder_imports,
    folders,
    fragments,
    log_names,
    mutual,
    participles,
    python_files,
    recorded,
    totals,
)

ROOT = Path(__file__).parent.parent


def test_the_hooks_run_the_commands_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = (ROOT / "Makefile").read_text().split("\nlint: ")[1].split("\n\n")[0]

    entries = [hook["entry"] for hook in hooks]
    assert len(entries) == 4
    assert [entry for entry in entries if entry.replace(".venv/bin", "$(BIN)") not in recipe] == []


def test_every_folder_of_services_starts_and_no_file_lies_beside_them() -> None:
    services = ROOT / "services"
    folders = [path for path in services.iterdir() if path.is_dir() and path.name != "__pycache__"]

    assert [folder.name for folder in folders if not (folder / "__main__.py").exists()] == []
    assert {path.name for path in services.iterdir() if path.is_file()} == {"Dockerfile", "__init__.py"}


def test_no_file_lies_beside_the_subjects_that_processes_share() -> None:
    assert [path.name for path in (ROOT / "ratchet").iterdir() if path.is_file()] == ["__init__.py"]


def test_no_two_folders_import_each_other() -> None:
    files = python_files()
    imports = set(folder_imports(files))

    assert len(imports) > 100
    assert mutual(imports) == []


def test_the_logs_are_named_and_the_best_answer_is_chosen_in_one_place() -> None:
    files = python_files()

    assert log_names(files) == ["ratchet/logs/names.py"]
    assert choices(files) == ["ratchet/logs/best_answer.py"]


def test_the_house_is_no_larger_than_its_record_says_and_its_words_are_whole() -> None:
    files = files_of()
    whole, of_folders = recorded()
    now, now_by_folder = totals(files), folders(files)

    assert whole.keys() == now.keys()
    grown = {
        name: (now[name], bound)
        for name, bound in whole.items()
        if _may_not_grow(name) and now[name] > bound * (1 + SLACK)
    }
    assert grown == {}, "if the growth is meant, type `python -m tests.house`"
    assert now_by_folder.keys() - of_folders.keys() == set(), "type `python -m tests.house`"
    assert bad_words(files) == {}, "a docstring is a fragment, or a function is named by a bare participle"


def _may_not_grow(name: str) -> bool:
    return name not in ("lines that are a comment", "functions with a docstring")


def test_a_fragment_and_a_bare_participle_are_found() -> None:
    source = '''
class Letter:
    """Where a letter is."""
    at: int
    """Of the queue, the place."""
    def told(self): "Tell it."
    def _said(self): "Whether it was said."
    @property
    def closed(self): "True after the end."
    def feed(self): "Feed it."
    def seen_by(self): "Whoseever."
'''

    assert fragments(source) == ["Where a letter is.", "Of the queue, the place.", "Whether it was said."]
    assert participles(source) == ["told", "_said"]
    files = dict.fromkeys(("ratchet/a.py", "bench/a.py", "infra/a.py", "tests/a.py", "docs/a.md"), source)
    assert list(bad_words(files)) == ["ratchet/a.py", "bench/a.py", "infra/a.py"]


def test_programs_start_without_torch_and_those_that_read_tokenizers_keep_it_out() -> None:
    code = (
        "import importlib, pkgutil, sys, services, ratchet.rollouts.__main__, services.trainer.train\n"
        "for found in pkgutil.iter_modules(services.__path__):\n"
        "    importlib.import_module(f'services.{found.name}.__main__')\n"
        "early = {'torch', 'transformers', 'peft'} & sys.modules.keys()\n"
        "ratchet.rollouts.__main__.keep_torch_out()\n"
        "from transformers import AutoTokenizer\n"
        "sys.exit(' '.join(early) or (sys.modules['torch'] and 'torch'))"
    )

    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr


def test_no_test_sleeps_where_it_could_wait_for_something() -> None:
    """tests/waiting.py waits; what must be a sleep says why on its line."""
    bare = re.compile(r"\bsleep\((?!0\))(?!.*# .*(?:real time: |simulated))")
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name != "waiting.py"]

    lines = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        for line in file.read_text().splitlines()
        if bare.search(line)
    ]
    assert lines == []


def test_every_test_has_a_name_of_its_own(request: pytest.FixtureRequest) -> None:
    """Only one of several tests with the same name is run when processes share the tests."""
    names = Counter(item.nodeid for item in request.session.items)

    assert [name for name, count in names.items() if count > 1] == []
