"""The files that `ratchet broker credentials` writes."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from ratchet.bus.accounts import Account, accounts, password_hash
from ratchet.bus.topology import fleet_topology
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from services.cli.fleet.credentials import DEFINITIONS, SECRET, hand_out, write_credentials

FLEET = accounts(fleet_topology(("small",)), ("small",))


def write(out: Path, fleet: tuple[Account, ...] = FLEET) -> dict[str, str]:
    """The secret of each user."""
    write_credentials(out, fleet, host="broker.example", port=5671)
    return {account.name: (out / account.name / SECRET).read_text() for account in fleet}


def test_each_user_gets_an_url_with_a_password_of_its_own(tmp_path: Path) -> None:
    urls = write(tmp_path)

    parts = {name: urlsplit(url) for name, url in urls.items()}
    assert {part.username for part in parts.values()} == {account.name for account in FLEET}
    assert len({part.password for part in parts.values()}) == len(FLEET)
    assert {(part.hostname, part.port, part.path) for part in parts.values()} == {("broker.example", 5671, "/%2F")}
    assert min(len(str(part.password)) for part in parts.values()) >= 32


def test_a_secret_is_for_its_owner_only(tmp_path: Path) -> None:
    write(tmp_path)

    secret = tmp_path / "scorer" / SECRET
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700


def test_the_broker_gets_a_salted_hash_of_each_password_and_no_password(tmp_path: Path) -> None:
    urls = write(tmp_path)

    text = (tmp_path / DEFINITIONS).read_text()
    for user in json.loads(text)["users"]:
        password = unquote(str(urlsplit(urls[user["name"]]).password))
        raw = base64.b64decode(user["password_hash"])
        assert raw[4:] == hashlib.sha256(raw[:4] + password.encode()).digest()
        assert password not in text


def test_the_hash_is_that_of_the_brokers_manual() -> None:
    assert password_hash("test12", bytes.fromhex("908DC60A")) == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_written_again_passwords_stay_and_a_new_agent_joins(tmp_path: Path) -> None:
    before = write(tmp_path)

    after = write(tmp_path, accounts(fleet_topology(("small", "coder")), ("small", "coder")))

    assert before.items() <= after.items()
    assert set(after) - set(before) == {"agent-coder"}
    assert "agent-coder" in {user["name"] for user in json.loads((tmp_path / DEFINITIONS).read_text())["users"]}


def test_the_users_of_two_fleets_on_one_broker_differ(tmp_path: Path) -> None:
    passwords = {name: urlsplit(url).password for name, url in write(tmp_path / "blue").items()}
    others = json.loads((tmp_path / "blue" / DEFINITIONS).read_text())

    write_credentials(tmp_path / "blue", FLEET, host="broker.example", port=5671, namespace="blue.")

    ours = json.loads((tmp_path / "blue" / DEFINITIONS).read_text())
    assert {user["name"] for user in ours["users"]} == {f"blue.{user['name']}" for user in others["users"]}
    assert {one["user"] for key in ("permissions", "topic_permissions") for one in ours[key]} == {
        f"blue.{one['user']}" for key in ("permissions", "topic_permissions") for one in others[key]
    }
    for name, password in passwords.items():  # a fleet that had its users under other names keeps their passwords
        url = urlsplit((tmp_path / "blue" / name / SECRET).read_text())
        assert (url.username, url.password) == (f"blue.{name}", password)


def test_a_deleted_secret_is_made_anew(tmp_path: Path) -> None:
    before = write(tmp_path)
    (tmp_path / "scorer" / SECRET).unlink()

    after = write(tmp_path)

    assert {name for name in before if before[name] != after[name]} == {"scorer"}


def test_a_folder_that_can_not_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "orchestrator").write_text("a file where a folder should be")

    with pytest.raises(SettingsError, match="can't be written"):
        write(tmp_path)


def test_a_service_reads_its_secret_from_the_folder_of_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = write(tmp_path)
    monkeypatch.delenv("RATCHET_AMQP_URL", raising=False)
    monkeypatch.setenv("RATCHET_SECRETS_DIR", str(tmp_path / "scorer"))

    assert FleetSettings.read().amqp_url.get_secret_value() == urls["scorer"]

    monkeypatch.setenv("RATCHET_AMQP_URL", "amqp://elsewhere/")
    assert FleetSettings.read().amqp_url.get_secret_value() == "amqp://elsewhere/"


def handed_out(given: Path, out: Path) -> dict[str, set[str]]:
    """Secret → who has it."""
    hand_out(given, out, FLEET)
    owners: dict[str, set[str]] = {}
    for path in out.glob("*/*"):
        if path.name not in (SECRET, Path(DEFINITIONS).name):
            owners.setdefault(path.name, set()).add(path.parent.name)
    return owners


def test_each_given_secret_reaches_those_it_is_for_and_nobody_else(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    for name in ("hf_token", "ratchet_scorer_judge_api_key", "ratchet_agent_vllm_api_key", "README.md"):
        (given / name).write_text(f"the content of {name}\n")

    assert handed_out(given, out) == {
        "hf_token": {"agent-small", "scorer", "trainer", "vllm"},
        "ratchet_scorer_judge_api_key": {"scorer"},
        "ratchet_agent_vllm_api_key": {"agent-small"},
    }
    secret = out / "scorer" / "ratchet_scorer_judge_api_key"
    assert secret.read_text() == "the content of ratchet_scorer_judge_api_key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_an_auditor_has_the_key_of_the_scorers_judge_whom_it_asks_too(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    names = ("ratchet_scorer_judge_api_key", "ratchet_scorer_api_key", "ratchet_auditor_judge_api_key")
    for name in names:
        (given / name).write_text("secret")
    hand_out(given, out, accounts(fleet_topology(("small",), auditor=True), ("small",)))

    held = {folder: {name for name in names if (out / folder / name).exists()} for folder in ("scorer", "auditor")}
    assert held == {"scorer": set(names[:2]), "auditor": {names[0], names[2]}}


def test_a_scorer_that_runs_code_has_the_scorers_password_and_none_of_its_secrets(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    for name in ("hf_token", "ratchet_scorer_judge_api_key"):
        (given / name).write_text("secret")
    urls = write(out)
    handed_out(given, out)
    (out / "scorer" / SECRET).unlink()

    assert {one.name for one in (out / "verifier").iterdir()} == {SECRET}
    assert stat.S_IMODE((out / "verifier").stat().st_mode) == 0o700
    assert (out / "verifier" / SECRET).read_text() == urls["scorer"] != write(out)["scorer"]
    assert (out / "verifier" / SECRET).read_text() == (out / "scorer" / SECRET).read_text()


def test_what_is_given_no_more_is_taken_back_and_passwords_stay(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    (given / "hf_token").write_text("secret")
    passwords = write(out)
    handed_out(given, out)
    (given / "hf_token").write_text("")

    assert handed_out(given, out) == {}
    assert write(out) == passwords


@pytest.mark.parametrize(
    "name", ["ratchet_judge_api_key", "hf_tokn", "ratchet_amqp_url", "RATCHET_SCORER_JUDGE_API_KEY"]
)
def test_a_secret_of_nobody_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / name).write_text("secret")

    with pytest.raises(SettingsError, match=name):
        handed_out(tmp_path / "given", tmp_path / "out")
