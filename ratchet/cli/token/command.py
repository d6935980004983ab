"""`ratchet token`: the keys of the API, and tokens: made, looked at, revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

token = typer.Typer(
    help="API tokens. Once: `ratchet token keys`, and the services get RATCHET_API_PUBLIC_KEYS=keys/jwks.json. Then, "
    "as often as needed: `ratchet token issue --role viewer --name ci --ttl 1h`. A fleet that listens on this machine "
    "only, as `ratchet up` starts it, needs neither.",
    no_args_is_help=True,
)

Keys = Annotated[
    Path | None, typer.Option(help="Folder of the keys; where RATCHET_API_PUBLIC_KEYS points, or `keys`, if not named.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
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
    from ratchet.cli.terminal.console import print_json, say
    from ratchet.cli.token.arguments import keys_here
    from ratchet.service.settings import FleetSettings

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
    role: Annotated[str, typer.Option(help="viewer (reads), submitter (uses the fleet) or operator (everything).")],
    name: Annotated[str, typer.Option(help="Whose it is; it is told in the audit and in decisions.")],
    ttl: Annotated[str, typer.Option(help="How long it lives: 30m, 8h; at most 24h.")] = "1h",
    keys: Keys = None,
    json: AsJson = False,
) -> None:
    """Issue a token. It alone goes to stdout: `export RATCHET_API_TOKEN=$(ratchet token issue …)`."""
    from datetime import UTC, datetime

    from ratchet.cli.terminal.console import print_json, print_raw
    from ratchet.cli.terminal.errors import UsageError
    from ratchet.cli.token.arguments import keys_here, seconds_of
    from ratchet.http.access.roles import Role
    from ratchet.http.access.tokens import issue as issued
    from ratchet.service.settings import FleetSettings

    if role not in list(Role):
        raise UsageError(f"there is no role {role!r}: {', '.join(Role)}")
    settings = FleetSettings.read()
    text, claims = issued(
        keys_here(keys, settings).signing_key(),
        name,
        Role(role),
        seconds_of(ttl),
        issuer=settings.api_issuer,
        audience=settings.api_audience,
    )
    if json:
        expires = datetime.fromtimestamp(claims.exp, UTC).isoformat()
        print_json({"token": text, "id": claims.jti, "name": name, "role": role, "expires_at": expires})
        return
    print_raw(text)


@token.command()
def check(token: Token, keys: Keys = None, json: AsJson = False) -> None:
    """Look at a token as a service would; exit code 1, and why, if it would be refused."""
    from datetime import UTC, datetime

    from ratchet.cli.terminal.console import out, print_json
    from ratchet.cli.token.arguments import checked, given

    claims = checked(given(token), keys)
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
    from ratchet.cli.terminal.console import say
    from ratchet.cli.token.arguments import checked, given, keys_here
    from ratchet.service.settings import FleetSettings

    claims = checked(given(token), keys)
    folder = keys_here(keys, FleetSettings.read())
    folder.revoke(claims.jti, claims.exp)
    say(f"revoked: {claims.sub} ({claims.jti}). Services read {folder.folder / 'revoked.txt'} beside their jwks.json")
