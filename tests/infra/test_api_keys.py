"""The stack's keys are those `ratchet token keys` would make: the services take its tokens, and nobody else's."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest

from infra.api_keys import JWKS, KEYS_AT, REVOKED, private_key, public_set
from infra.render.manifests import Manifest
from infra.render.recording import Recording
from infra.settings import PublicKey
from ratchet.http.access import keys
from ratchet.http.access.guard import TokenCheck
from ratchet.http.access.keys import public_jwk, read_private_key, read_public_keys
from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import TokenRefused, issue

SEED = base64.b64encode(b"a seed of thirty-two bytes, 32..").decode()
OTHER = base64.b64encode(b"another seed of thirty-two bytes").decode()


def token(seed: str) -> tuple[str, str]:
    text, claims = issue(
        read_private_key(private_key(seed).encode()), "ci", Role.VIEWER, 60, issuer="ratchet", audience="ratchet"
    )
    return text, claims.jti


def written(folder: Path, jwks: str, revoked: str = "") -> TokenCheck:
    (folder / JWKS).write_text(jwks)
    (folder / REVOKED).write_text(revoked)
    return TokenCheck(folder, issuer="ratchet", audience="ratchet")


async def test_a_service_takes_a_token_signed_with_the_stacks_key_and_no_other(tmp_path: Path) -> None:
    tokens = written(tmp_path, public_set(SEED, ()))

    assert (await tokens.caller(token(SEED)[0])).role is Role.VIEWER
    with pytest.raises(TokenRefused):
        await tokens.caller(token(OTHER)[0])


async def test_a_trusted_key_is_taken_too_and_a_revoked_token_is_not(tmp_path: Path) -> None:
    x = public_jwk(read_private_key(private_key(OTHER).encode()).public_key())
    text, token_id = token(OTHER)
    jwks = public_set(SEED, [PublicKey(x=x["x"], kid=x["kid"])])

    assert (await written(tmp_path, jwks).caller(text)).name == "ci"
    with pytest.raises(TokenRefused, match="revoked"):
        await written(tmp_path, jwks, f"{token_id} {int(time.time()) + 60}\n").caller(text)


def test_the_files_are_called_as_the_services_look_for_them() -> None:
    assert (JWKS, REVOKED) == (keys.JWKS, keys.REVOKED)


def test_every_pod_has_the_public_keys_and_none_the_private_one(
    prod: list[Manifest], prod_recording: Recording
) -> None:
    secrets = [manifest.content["stringData"] for manifest in prod if manifest.kind == "Secret"]
    given = [data[JWKS] for data in secrets if JWKS in data]
    told = {
        data["RATCHET_API_PUBLIC_KEYS"]
        for one in prod
        if "RATCHET_API_PUBLIC_KEYS" in (data := one.content.get("data") or {})
    }

    assert len(given) == 4
    assert len(set(given)) == 1
    assert len(read_public_keys(given[0].encode())) == 1
    assert '"d"' not in given[0]
    assert told == {KEYS_AT}
    assert prod_recording.outputs["api_signing_key"] == "[secret]"
