"""The workflows: safe to run, and calling the same commands people run. CI itself lints them with actionlint."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.render.manifests import manifests
from infra.render.recording import record

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
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


def test_there_are_these_workflows() -> None:
    assert [path.stem for path in FILES] == ["ci", "deploy", "nightly", "release"]


@every_workflow
def test_every_action_is_pinned_to_a_commit(path: Path) -> None:
    lines = [line.strip().removeprefix("- ") for line in path.read_text().splitlines() if "uses:" in line]
    used = [line for line in lines if "uses: ./" not in line]  # a workflow of this commit

    assert used
    assert [line for line in used if not PINNED.match(line)] == []


@every_workflow
def test_a_workflow_may_only_read_unless_a_job_asks_for_more(path: Path) -> None:
    assert _read(path)["permissions"] == {"contents": "read"}


@every_workflow
def test_every_job_ends_some_day(path: Path) -> None:
    assert all(job["timeout-minutes"] <= 60 for job in _read(path)["jobs"].values() if "uses" not in job)


@every_workflow
def test_no_shell_gets_what_an_outsider_wrote(path: Path) -> None:
    scripts = [step["run"] for step in _steps(_read(path)) if "run" in step]

    assert [script for script in scripts if FROM_OUTSIDERS.search(script)] == []


def test_ci_runs_what_people_run() -> None:
    scripts = " ".join(step.get("run", "") for step in _steps(_read(ROOT / ".github" / "workflows" / "ci.yml")))

    assert "make test" in scripts
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "bench.infra_mutants --sample 300" in scripts
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
    assert [name for name, job in jobs.items() for step in job.get("steps", ()) if "--tag" in step.get("run", "")] == [
        "release"
    ]
    assert jobs["release"]["needs"] == "images"


def test_a_release_waits_for_the_ci_of_its_own_commit_and_may_read_what_its_jobs_noted() -> None:
    jobs = _read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]

    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in _read(ROOT / ".github" / "workflows" / "ci.yml")[True]
    assert jobs["images"]["needs"] == "ci"
    assert "gh run download" in " ".join(step.get("run", "") for step in jobs["release"]["steps"])
    assert jobs["release"]["permissions"]["actions"] == "read"


def test_what_is_released_is_signed_by_digest_after_the_scan_and_without_a_key() -> None:
    job = _read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["images"]
    kinds = [
        "scan" if "trivy" in step.get("uses", "") else "sign"
        for step in job["steps"]
        if "trivy" in step.get("uses", "") or "cosign sign" in step.get("run", "")
    ]
    (signing,) = [step for step in job["steps"] if "cosign sign" in step.get("run", "")]

    assert kinds == ["scan", "sign"]
    assert job["permissions"]["id-token"] == "write"
    assert signing["env"]["IMAGE"].endswith("@${{ steps.build.outputs.digest }}")
    assert set(re.findall(r"cosign attest --yes --type (\w+)", signing["run"])) == {"spdxjson", "slsaprovenance1"}
    assert "--key" not in signing["run"]


@every_workflow
def test_a_pull_requests_code_runs_without_credentials(path: Path) -> None:
    workflow = _read(path)
    if "pull_request" not in workflow[True]:
        return
    for name, job in workflow["jobs"].items():
        if "github.event_name != 'pull_request'" in job.get("if", "") or job.get("needs") == "preview":
            continue
        assert "environment" not in job, name
        assert "secrets." not in str(job), name
        assert "write" not in str(job.get("permissions", {})), name


def test_images_are_verified_before_they_are_deployed() -> None:
    steps = _read(ROOT / ".github" / "workflows" / "deploy.yml")["jobs"]["up"]["steps"]
    scripts = [step.get("run", "") or step.get("with", {}).get("command", "") for step in steps]
    verifying = next(index for index, script in enumerate(scripts) if "infra/verify-images.sh prod" in script)

    assert verifying < scripts.index("up")
    assert steps[verifying]["env"]["SIGNER"].startswith("^https://github\\.com/${{ github.repository }}/")


def test_what_is_released_and_what_is_pinned_is_scanned_each_night() -> None:
    nightly = _read(ROOT / ".github" / "workflows" / "nightly.yml")
    release = _read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["images"]

    assert "schedule" in nightly[True]
    assert set(nightly["jobs"]["released"]["strategy"]["matrix"]["image"]) == {
        image["name"] for image in release["strategy"]["matrix"]["include"]
    }
    assert {"released", "source", "cluster"} == set(nightly["jobs"])


def test_every_kind_of_dependency_is_kept_up_to_date() -> None:
    kept = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    folders = {
        (one["package-ecosystem"], folder) for one in kept for folder in one.get("directories", [one.get("directory")])
    }
    packages = subprocess.run(
        ["git", "ls-files", "*package.json"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert folders >= {("github-actions", "/"), ("pip", "/"), ("docker", "/services"), ("docker-compose", "/")}
    assert {("npm", f"/{Path(line).parent}") for line in packages.stdout.split()} <= folders


@pytest.mark.parametrize("script", ["compose-test", "kind-test", "verify-images", "upgrade"])
def test_the_scripts_are_shell(script: str) -> None:
    run = subprocess.run(["sh", "-n", ROOT / "infra" / f"{script}.sh"], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr


def test_the_cluster_of_the_test_has_every_image_that_its_stack_runs() -> None:
    configuration = yaml.safe_load((ROOT / "infra" / "Pulumi.dev.yaml").read_text())["config"]
    images = {
        found[1]
        for manifest in manifests(record("dev", configuration))
        for found in re.finditer(r"'image': '[^']*/ratchet-([a-z]+):dev'", str(manifest.content))
    }
    (services,) = re.findall(r'^services="(.*)"$', (ROOT / "infra" / "kind-test.sh").read_text(), re.MULTILINE)

    assert set(services.split()) == images


@pytest.mark.parametrize(
    ("image", "signed", "code", "says"),
    [
        ("reg/ratchet-agent:1.0.0@sha256:ab", True, 0, "verified: reg/ratchet-agent:1.0.0@sha256:ab"),
        ("reg/ratchet-agent:1.0.0@sha256:ab", False, 1, "no matching signatures"),
        ("reg/ratchet-agent:1.0.0", True, 1, "is not named by its digest"),
        ("docker.io/library/rabbitmq:4", True, 1, "has no image of ours"),
    ],
)
def test_a_stack_is_deployed_only_with_signed_images(
    tmp_path: Path, image: str, signed: bool, code: int, says: str
) -> None:
    programs = {
        "python": f'eval "out=\\${{$#}}"; echo "  - image: {image}" > "$out/pod.yaml"',
        "cosign": f'echo "$@" >> {tmp_path}/asked; ' + ("" if signed else "echo no matching signatures >&2; exit 1"),
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    run = subprocess.run(
        ["sh", ROOT / "infra" / "verify-images.sh", "prod"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SIGNER": "^https://github.com/us/ratchet/"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, says in run.stdout + run.stderr) == (code, True), run.stdout + run.stderr
    if code == 0:
        asked = (tmp_path / "asked").read_text()
        assert asked.count("--certificate-identity-regexp ^https://github.com/us/ratchet/") == 3
        assert "verify-attestation" in asked


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
    assert jobs["up"]["needs"] == "preview"
    assert "refs/heads/main" in jobs["preview"]["if"]
