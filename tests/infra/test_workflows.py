"""The workflows: safe to run, and calling the same commands people run. CI itself lints them with actionlint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
FROM_OUTSIDERS = re.compile(r"\$\{\{\s*github\.(?:event|head_ref|ref_name|actor)")
"""Whoever opens a pull request or pushes a tag chooses these: they reach a shell through the environment only."""

every_workflow = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def _read(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    return document


def _steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_the_three_workflows() -> None:
    assert [path.stem for path in FILES] == ["ci", "deploy", "release"]


@every_workflow
def test_every_action_is_pinned_to_a_commit(path: Path) -> None:
    used = [line.strip().removeprefix("- ") for line in path.read_text().splitlines() if "uses:" in line]

    assert used
    assert [line for line in used if not PINNED.match(line)] == []


@every_workflow
def test_a_workflow_may_only_read_unless_a_job_asks_for_more(path: Path) -> None:
    assert _read(path)["permissions"] == {"contents": "read"}


@every_workflow
def test_every_job_ends_some_day(path: Path) -> None:
    assert all(job["timeout-minutes"] <= 60 for job in _read(path)["jobs"].values())


@every_workflow
def test_no_shell_gets_what_an_outsider_wrote(path: Path) -> None:
    scripts = [step["run"] for step in _steps(_read(path)) if "run" in step]

    assert [script for script in scripts if FROM_OUTSIDERS.search(script)] == []


def test_ci_runs_what_people_run() -> None:
    scripts = " ".join(step.get("run", "") for step in _steps(_read(ROOT / ".github" / "workflows" / "ci.yml")))

    assert "make test" in scripts
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert {"dev", "prod"} == set(re.findall(r"infra\.render --stack (\w+)", scripts))


def test_ci_and_release_build_an_image_for_every_container() -> None:
    containers = {main.parent.name for main in (ROOT / "services").glob("*/__main__.py")}
    ci, release = (
        _read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]["images"] for name in ("ci", "release")
    )

    assert set(ci["strategy"]["matrix"]["service"]) == containers
    assert {image["service"] for image in release["strategy"]["matrix"]["include"]} == containers


def test_no_image_has_a_version_before_all_were_scanned() -> None:
    jobs = _read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    steps = jobs["images"]["steps"]
    (pushed,) = [step["with"] for step in steps if step.get("uses", "").startswith("docker/build-push-action@")]
    (scanned,) = [step["with"] for step in steps if step.get("uses", "").startswith("aquasecurity/trivy-action@")]

    assert "tags" not in pushed
    assert "push-by-digest=true" in pushed["outputs"].split(",")
    assert scanned["image-ref"].endswith("@${{ steps.build.outputs.digest }}")
    assert scanned["exit-code"] == "1"
    assert [name for name, job in jobs.items() for step in job["steps"] if "--tag" in step.get("run", "")] == [
        "release"
    ]
    assert jobs["release"]["needs"] == "images"


def test_a_deployment_shows_itself_first_and_asks_its_environment() -> None:
    jobs = _read(ROOT / ".github" / "workflows" / "deploy.yml")["jobs"]

    commands = {
        name: step["with"]["command"]
        for name, job in jobs.items()
        for step in job["steps"]
        if "command" in step.get("with", {})
    }

    assert commands == {"preview": "preview", "up": "up"}
    assert jobs["up"]["environment"] == "prod"
    assert "refs/heads/main" in jobs["up"]["if"]
