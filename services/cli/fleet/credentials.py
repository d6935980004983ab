"""Makes the passwords of the broker's users, once, and writes what each of them needs, and the broker, into folders.

    <out>/<account>/ratchet_amqp_url    the URL with user and password: that service's secret, for /run/secrets
    <out>/<account>/<secret>            a secret that was given, where it is this account's: a judge's key, say
    <out>/verifier/ratchet_amqp_url     the scorer's, for a scorer that runs code and may see no other secret
    <out>/broker/definitions.json       users with salted hashes, and permissions: for the broker to load at its start

Run again it keeps the passwords and writes the definitions anew: after a change of the fleet, start the broker again.
To have a new password, delete its file first. Leaves out the queues: `ratchet broker setup` declares them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ratchet.bus.accounts import VHOST, Account, definitions
from ratchet.files.atomic_file import replace_file
from ratchet.service.errors import SettingsError

SECRET = "ratchet_amqp_url"
DEFINITIONS = "broker/definitions.json"
HUB_TOKEN = "hf_token"
OF_JUDGE = "ratchet_scorer_judge_"
"""The auditor asks the scorer's judge where it has none of its own."""
MODEL_SERVER = "vllm"
"""No user of the broker: it downloads models, as agents, the scorer and the trainer do."""
STAND_INS = {"verifier": "scorer"}
"""Folder, and the account whose URL alone is in it: who stands in for that one, and is to have none of its secrets."""
NOT_SECRETS = ("README.md", ".gitignore")
PASSWORD_BYTES = 24


def write_credentials(
    out: Path, fleet: Iterable[Account], *, host: str, port: int, group: int | None = None, namespace: str = ""
) -> None:
    """With a `group`, that group may read each secret: for services that run as another user. The users' names begin
    with the `namespace`, so that those of two fleets on one broker differ.

    Raises SettingsError, JournalError where a file can't be read or written.
    """
    fleet = tuple(fleet)
    passwords: dict[Account, str] = {}
    try:
        for account in fleet:
            secret = out / account.name / SECRET
            _own_folder(secret.parent, group)
            passwords[account] = _password(secret, namespace + account.name, host, port)
            _close(secret, group)
        urls = {account.name: (out / account.name / SECRET).read_bytes() for account in fleet}
        for stand_in, name in STAND_INS.items():
            if name in urls:
                _own_folder(out / stand_in, group)
                replace_file(out / stand_in / SECRET, urls[name])
                _close(out / stand_in / SECRET, group)
        path = out / DEFINITIONS
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(definitions(passwords, namespace), indent=2).encode())
    except OSError as error:
        raise SettingsError(f"the broker's credentials can't be written: {error}") from None


def hand_out(given: Path, out: Path, fleet: Iterable[Account], *, group: int | None = None) -> list[str]:
    """Copy each file of the folder `given` to whom it is for, and take back what is given no more. Returns their names.

    Raises SettingsError for a file that is nobody's, or can't be read or written.
    """
    accounts = [*(account.name for account in fleet), MODEL_SERVER]
    try:
        secrets_given = {
            path.name: path.read_bytes().strip()
            for path in sorted(given.iterdir())
            if path.is_file() and path.name not in NOT_SECRETS and path.stat().st_size
        }
        for name in secrets_given:
            if not any(_is_for(name, account) for account in accounts):
                raise SettingsError(
                    f"{name} is no secret that is handed out: {HUB_TOKEN}, or a setting's name in small letters that "
                    "begins with ratchet_ and a service, such as ratchet_scorer_judge_api_key"
                )
        for account in accounts:
            folder = out / account
            _own_folder(folder, group)
            for path in folder.iterdir():
                if path.name not in (SECRET, *secrets_given):
                    path.unlink()
            for name, content in secrets_given.items():
                if _is_for(name, account):
                    replace_file(folder / name, content)
                    _close(folder / name, group)
    except OSError as error:
        raise SettingsError(f"the secrets can't be handed out: {error}") from None
    return list(secrets_given)


def _is_for(secret: str, account: str) -> bool:
    service = account.partition("-")[0]
    if secret == HUB_TOKEN:
        return service in ("agent", "scorer", "auditor", "trainer", MODEL_SERVER)
    if secret.startswith(OF_JUDGE):
        return service in ("scorer", "auditor")
    return secret.startswith(f"ratchet_{service}_")


def _own_folder(folder: Path, group: int | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if group is not None:
        os.chown(folder, -1, group)
    folder.chmod(0o700 if group is None else 0o750)


def _close(secret: Path, group: int | None) -> None:
    if group is not None:
        os.chown(secret, -1, group)
    secret.chmod(0o600 if group is None else 0o640)


def _password(path: Path, user: str, host: str, port: int) -> str:
    """The one that is there already, or a new one. The broker's address and the user's name may have changed."""
    known = unquote(urlsplit(path.read_text().strip()).password or "") if path.exists() else ""
    password = known or secrets.token_urlsafe(PASSWORD_BYTES)
    url = f"amqp://{quote(user)}:{quote(password)}@{host}:{port}/{quote(VHOST, safe='')}"
    replace_file(path, url.encode(), mode=0o600)
    return password
