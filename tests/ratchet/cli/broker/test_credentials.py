"""The files that `ratchet broker credentials` writes."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from ratchet.bus.topology import fleet_topology
from ratchet.cli.broker.accounts import Account, accounts
from ratchet.cli.broker.credentials import DEFINITIONS, SECRET, password_hash, write_credentials
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings

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
