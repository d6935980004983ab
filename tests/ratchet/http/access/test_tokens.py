"""Tokens: taken is what we issue, refused is everything else, and nothing else happens."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ratchet.http.access.keys import public_jwk, read_public_keys
from ratchet.http.access.roles import Caller, Role
from ratchet.http.access.tokens import LONGEST_LIFE_S, Claims, TokenRefused, check, issue
from ratchet.service.errors import SettingsError
from tests.quick import rounds
from tests.ratchet.http.access.tokens_for_tests import OURS, Mint


@pytest.fixture(scope="module")
def mint(tmp_path_factory: pytest.TempPathFactory) -> Mint:
    return Mint(tmp_path_factory.mktemp("keys"))


def looked_at(mint: Mint, token: str) -> Claims:
    return check(token, read_public_keys(mint.keys.jwks.read_bytes()), **OURS)


@pytest.mark.parametrize("role", Role)
def test_a_token_says_who_calls_and_as_what(mint: Mint, role: Role) -> None:
    claims = looked_at(mint, mint.good(role, "ci@example.org"))

    assert claims.caller == Caller("ci@example.org", role, claims.jti, is_bound=role is Role.SUBMITTER)
    assert claims.exp - claims.iat == 3600


def test_no_two_tokens_have_the_same_id(mint: Mint) -> None:
    assert len({looked_at(mint, mint.good(Role.VIEWER)).jti for _ in range(20)}) == 20


WHENS = ("iat", "exp", "nbf")
"""Claims whose whole numbers are given below as seconds from now."""
WRONG_CLAIMS = {
    "no issuer": ({"iss": None}, "iss"),
    "no audience": ({"aud": None}, "aud"),
    "no expiry": ({"exp": None}, "exp"),
    "no id": ({"jti": None}, "jti"),
    "no time of issue": ({"iat": None}, "iat"),
    "no name": ({"sub": None}, "sub"),
    "no role": ({"role": None}, "role"),
    "another issuer": ({"iss": "elsewhere"}, "issuer"),
    "another audience": ({"aud": "elsewhere"}, "audience"),
    "more than one audience": ({"aud": ["ratchet", "elsewhere"]}, "audience"),
    "expired": ({"iat": -700, "exp": -100}, "expired"),
    "issued in the future": ({"iat": 1000, "exp": 2000}, "not valid yet"),
    "not valid yet": ({"nbf": 500}, "not valid yet"),
    "lives too long": ({"iat": 0, "exp": LONGEST_LIFE_S + 1}, "lifetime"),
    "ends before it begins": ({"iat": 5, "exp": 5}, "lifetime"),
    "an unknown role": ({"role": "god"}, "role"),
    "roles as a list": ({"role": ["operator"]}, "role"),
    "a name with a line break": ({"sub": "a\nb"}, "sub"),
    "an empty id": ({"jti": ""}, "jti"),
    "an id that is a number": ({"jti": 7}, "no token of ours"),
    "a time that is text": ({"exp": "tomorrow"}, "no token of ours"),
    "a time that is no number": ({"exp": float("nan")}, "no token of ours"),
    "a time that is a truth value": ({"iat": True}, "iat"),
}


@pytest.mark.parametrize(("changed", "said"), WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_a_token_of_our_own_key_with_a_wrong_claim_is_refused(mint: Mint, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        looked_at(mint, mint.forged(mint.claims(**from_now(changed))))


def from_now(changed: dict[str, Any]) -> dict[str, Any]:
    now = int(time.time())
    return {name: now + value if name in WHENS and type(value) is int else value for name, value in changed.items()}


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_a_token_without_a_signature_is_refused(mint: Mint) -> None:
    kid = mint.keys.key_ids()[0]

    for algorithm in ("none", "None", "NONE", ""):
        token = f"{part({'alg': algorithm, 'kid': kid, 'typ': 'JWT'})}.{part(mint.claims())}."
        with pytest.raises(TokenRefused):
            looked_at(mint, token)


def test_the_public_key_is_no_secret_to_sign_with(mint: Mint) -> None:
    kid = mint.keys.key_ids()[0]
    public = mint.keys.signing_key().public_key().public_bytes_raw()

    token = jwt.encode(mint.claims(), public, "HS256", {"kid": kid})

    with pytest.raises(TokenRefused, match="no token of ours"):
        looked_at(mint, token)


def test_a_stranger_s_key_is_refused_whatever_its_id_says(mint: Mint) -> None:
    stranger = Ed25519PrivateKey.generate()
    honest = jwt.encode(mint.claims(), stranger, "EdDSA", {"kid": public_jwk(stranger.public_key())["kid"]})
    lying = jwt.encode(mint.claims(), stranger, "EdDSA", {"kid": mint.keys.key_ids()[0]})
    brought = jwt.encode(mint.claims(), stranger, "EdDSA", {"jwk": public_jwk(stranger.public_key())})

    for token, said in ((honest, "not known"), (lying, "signature"), (brought, "not known")):
        with pytest.raises(TokenRefused, match=said):
            looked_at(mint, token)


@pytest.mark.parametrize("kid", [None, 7, "", "../../etc/passwd"])
def test_a_key_id_that_is_none_of_ours_is_refused(mint: Mint, kid: Any) -> None:
    with pytest.raises(TokenRefused):
        looked_at(mint, f"{part({'alg': 'EdDSA', 'kid': kid})}.{part(mint.claims())}.AAAA")


def test_a_changed_letter_anywhere_is_found(mint: Mint) -> None:
    token = mint.good(Role.VIEWER)

    for position in range(0, len(token), 7):
        changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        with pytest.raises(TokenRefused):
            looked_at(mint, changed)


@given(st.text(max_size=300))
@example("..")
@example("a.b.c")
@example("eyJhbGciOiJFZERTQSJ9.e30.")
@example("é.é.é")
@settings(max_examples=rounds(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_as_a_token_is_refused_in_a_sentence(mint: Mint, token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        looked_at(mint, token)

    assert len(token) < 12 or token not in str(refused.value)


def test_a_token_as_long_as_a_book_is_not_even_read(mint: Mint) -> None:
    with pytest.raises(TokenRefused, match="longer"):
        looked_at(mint, "a" * 5000)


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "x" * 101, "-dash", "ünïcode"])
def test_a_name_no_service_would_take_is_not_issued(mint: Mint, name: str) -> None:
    with pytest.raises(SettingsError, match="name"):
        issue(mint.keys.signing_key(), name, Role.VIEWER, 60, **OURS)


@pytest.mark.parametrize("ttl_s", [-1, 0, LONGEST_LIFE_S + 1])
def test_a_lifetime_no_service_would_take_is_not_issued(mint: Mint, ttl_s: int) -> None:
    with pytest.raises(SettingsError, match="lives"):
        issue(mint.keys.signing_key(), "ci", Role.VIEWER, ttl_s, **OURS)


def test_a_private_key_among_the_public_ones_is_refused(mint: Mint, tmp_path: Path) -> None:
    private = json.loads((mint.keys.folder / "signing-key.json").read_bytes())

    with pytest.raises(SettingsError, match="private key"):
        read_public_keys(json.dumps({"keys": [private]}).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b'{"keys": [{"kty": "OKP", "crv": "Ed25519"}]}',
        b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": 7}]}',
        b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}',
    ],
)
def test_what_is_no_set_of_keys_is_refused(content: bytes) -> None:
    with pytest.raises(SettingsError):
        read_public_keys(content)
