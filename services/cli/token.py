"""`ratchet token`: the keys of the API, and tokens: made, looked at, revoked."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ratchet.http.access import tokens
from ratchet.http.access.keys import KeyFolder, read_public_keys, read_revoked
from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import Claims, TokenRefused
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from services.cli.terminal import AsJson, UsageError, out, print_json, print_raw, say

token = typer.Typer()

Keys = Annotated[
    Path | None, typer.Option(help="Folder of the keys; where RATCHET_API_PUBLIC_KEYS points, or `keys`, if not named.")
]
Token = Annotated[str, typer.Argument(help="The token, or `-` to read it from stdin: a shell remembers what is typed.")]


@token.command()
def keys(
    out: Annotated[Path | None, typer.Option(help="Folder to put them in; `keys` if not named.")] = None,
    rotate: Annotated[bool, typer.Option(help="Make a new pair; tokens signed with the old one stay good.")] = False,
    retire: Annotated[bool, typer.Option(help="Drop the old public keys: tokens signed with them end now.")] = False,
    json: AsJson = False,
) -> None:
    """Make the key pair, if there is none: signing-key.json (private) and jwks.json (for the services).

    To rotate: `--rotate`, issue new tokens, and when the old ones have expired, at the latest after a day, `--retire`.
    The services notice by themselves within a second. If the private key got lost or out: `--rotate --retire` at once.
    """
    folder = keys_here(out, FleetSettings.read())
    made = folder.make() if rotate or not folder.exists() else None
    retired = folder.retire() if retire else []
    if json:
        print_json({"folder": str(folder.folder), "made": made, "retired": retired, "key_ids": folder.key_ids()})
        return
    say(f"made: key {made}" if made else "there is a key pair already: --rotate makes a new one")
    if retired:
        say(f"retired: {', '.join(retired)}")
    say(f"services: RATCHET_API_PUBLIC_KEYS={folder.jwks}   tokens: ratchet token issue --keys {folder.folder} --help")


@token.command()
def issue(
    role: Annotated[
        str,
        typer.Option(
            help="viewer (reads), submitter (uses the fleet), operator (everything), admin (tenants, quotas) or "
            "runner (programs' calls)."
        ),
    ],
    name: Annotated[str, typer.Option(help="Whose it is; it is told in the audit and in decisions.")],
    ttl: Annotated[str, typer.Option(help="How long it lives: 30m, 8h; at most 24h.")] = "1h",
    tenant: Annotated[
        str | None,
        typer.Option(help="Bind it to this tenant. Without one a submitter is of `default`, others reach all tenants."),
    ] = None,
    keys: Keys = None,
    json: AsJson = False,
) -> None:
    """Issue a token. It alone goes to stdout: `export RATCHET_API_TOKEN=$(ratchet token issue …)`."""
    if role not in list(Role):
        raise UsageError(f"there is no role {role!r}: {', '.join(Role)}")
    settings = FleetSettings.read()
    text, claims = tokens.issue(
        keys_here(keys, settings).signing_key(),
        name,
        Role(role),
        seconds_of(ttl),
        issuer=settings.api_issuer,
        audience=settings.api_audience,
        tenant=tenant,
    )
    if json:
        expires = datetime.fromtimestamp(claims.exp, UTC).isoformat()
        print_json({"token": text, "id": claims.jti, "name": name, "role": role, "expires_at": expires})
        return
    print_raw(text)


@token.command()
def check(token: Token, keys: Keys = None, json: AsJson = False) -> None:
    """Look at a token as a service would; exit code 1, and why, if it would be refused."""
    claims = check_token(read_token(token), keys)
    expires = datetime.fromtimestamp(claims.exp, UTC)
    if json:
        print_json(claims.model_dump(mode="json"))
        return
    out.print(
        f"good: {claims.sub}, {claims.role}, until {expires:%Y-%m-%d %H:%M:%S} UTC (id {claims.jti})", markup=False
    )


@token.command()
def revoke(token: Token, keys: Keys = None) -> None:
    """Refuse a token from now on, before it expires. Of one whose text is lost, rotate and retire the keys."""
    claims = check_token(read_token(token), keys)
    folder = keys_here(keys, FleetSettings.read())
    folder.revoke(claims.jti, claims.exp)
    say(f"revoked: {claims.sub} ({claims.jti}). Services read {folder.folder / 'revoked.txt'} beside their jwks.json")


DEFAULT = Path("keys")


def keys_here(named: Path | None, settings: FleetSettings) -> KeyFolder:
    if named is not None:
        return KeyFolder(named)
    if (public := settings.api_public_keys) is not None:
        return KeyFolder(public if public.is_dir() else public.parent)
    return KeyFolder(DEFAULT)


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> int:
    """Raises UsageError."""
    match = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no lifetime: a number and s, m, h or d, as in 30m or 8h")
    return int(match[1]) * UNITS[match[2]]


def read_token(token: str) -> str:
    return sys.stdin.read().strip() if token == "-" else token


def check_token(token: str, keys: Path | None) -> Claims:
    """Raises TokenRefused, and SettingsError where there are no keys to look with."""
    settings = FleetSettings.read()
    folder = keys_here(keys, settings)
    try:
        public = read_public_keys(folder.jwks.read_bytes())
        revoked = read_revoked(folder.revoked.read_bytes()) if folder.revoked.exists() else {}
    except OSError as error:
        raise SettingsError(f"no keys to check with: {error}. `ratchet token keys` makes some") from None
    claims = tokens.check(token, public, issuer=settings.api_issuer, audience=settings.api_audience)
    if claims.jti in revoked:
        raise TokenRefused("the token was revoked: issue a new one")
    return claims
