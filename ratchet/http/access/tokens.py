"""API tokens: JWTs signed with Ed25519, short-lived, each with an id, a name and a role.

Taken is only what is written here: algorithm EdDSA, a known key id, every claim present, issuer and audience ours, a
lifetime of at most a day. What is not here cannot be asked for by the token itself.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ratchet.http.access.keys import PublicKeys, public_jwk
from ratchet.http.access.roles import Caller, Role
from ratchet.logs.tenants import DEFAULT
from ratchet.service.errors import RatchetError, SettingsError
from schemas.messages.base import TenantName

ALGORITHM = "EdDSA"
LONGEST_LIFE_S = 24 * 3600
LEEWAY_S = 10
"""Seconds by which clocks may differ."""
LONGEST_TOKEN = 4096
EXPIRED = "the token has expired: issue a new one (`ratchet token issue`)"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@:+-]{0,99}$"

Name = Annotated[str, StringConstraints(pattern=NAME)]


class TokenRefused(RatchetError):
    """The token is not taken; the sentence says why, and never repeats what was in it."""


class UnknownKey(TokenRefused):
    """It is signed with a key that was not there when the keys were read."""


class Claims(BaseModel):
    """The claims of a token. Times are seconds since 1970; unknown claims are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    iss: str
    aud: str
    sub: Name
    jti: Name
    iat: int
    exp: int
    nbf: int | None = None
    role: Annotated[Role, Field(strict=False)]
    tenant: TenantName | None = None

    @property
    def caller(self) -> Caller:
        """Return the caller. Its name has its tenant in it, for names are each tenant's own. A submitter without a
        tenant is of `default`; others without one reach all tenants.
        """
        tenant = self.tenant or DEFAULT
        name = self.sub if tenant == DEFAULT else f"{tenant}/{self.sub}"
        is_bound = self.tenant is not None or self.role is Role.SUBMITTER
        return Caller(name, self.role, self.jti, tenant=tenant, is_bound=is_bound)


def issue(
    key: Ed25519PrivateKey, name: str, role: Role, ttl_s: int, *, issuer: str, audience: str, tenant: str | None = None
) -> tuple[str, Claims]:
    """A token good from now on. Raises SettingsError for a name or a lifetime that no service would take."""
    if not 0 < ttl_s <= LONGEST_LIFE_S:
        raise SettingsError(f"a token lives at least 1 s and at most {LONGEST_LIFE_S // 3600} h, not {ttl_s} s")
    now = int(time.time())
    try:
        claims = Claims(
            iss=issuer,
            aud=audience,
            sub=name,
            jti=secrets.token_hex(16),
            iat=now,
            exp=now + ttl_s,
            role=role,
            tenant=tenant,
        )
    except ValidationError as error:
        if error.errors()[0]["loc"] == ("tenant",):
            raise SettingsError(
                f"{tenant!r} can't be a tenant's name: small letters, digits and -, at most 32, no - at an end"
            ) from None
        raise SettingsError(
            f"{name!r} can't be a token's name: letters, digits and ._@:+- , at most 100, a letter or digit first"
        ) from None
    content = claims.model_dump(mode="json", exclude_none=True)
    return jwt.encode(content, key, ALGORITHM, {"kid": public_jwk(key.public_key())["kid"]}), claims


def check(token: str, keys: PublicKeys, *, issuer: str, audience: str) -> Claims:
    """Return the token's claims if it is valid now. Raises TokenRefused. Revoked ids are not known here."""
    if len(token) > LONGEST_TOKEN:
        raise TokenRefused(f"the token is longer than {LONGEST_TOKEN} characters")
    try:
        claims = Claims.model_validate(_verify(token, keys, issuer, audience))
    except jwt.ExpiredSignatureError:
        raise TokenRefused(EXPIRED) from None
    except jwt.ImmatureSignatureError:
        raise TokenRefused("the token is not valid yet: compare the clocks") from None
    except jwt.InvalidIssuerError:
        raise TokenRefused("the token is of another issuer (RATCHET_API_ISSUER)") from None
    except jwt.InvalidAudienceError:
        raise TokenRefused("the token is for another audience (RATCHET_API_AUDIENCE)") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenRefused(f"the token lacks the claim {error.claim}") from None
    except ValidationError as error:
        claim = error.errors(include_input=False)[0]["loc"][0]
        raise TokenRefused(f"the token's claim {claim} is not as it must be") from None
    except jwt.InvalidSignatureError:
        raise TokenRefused("the token's signature is not that of its key") from None
    except jwt.PyJWTError:
        raise TokenRefused(f"this is no token of ours: a JWT signed with {ALGORITHM}") from None
    if not 0 < claims.exp - claims.iat <= LONGEST_LIFE_S:
        raise TokenRefused(f"the token's lifetime is over {LONGEST_LIFE_S // 3600} h, or none")
    return claims


def _verify(token: str, keys: PublicKeys, issuer: str, audience: str) -> dict[str, object]:
    key_id = jwt.get_unverified_header(token).get("kid")
    if not isinstance(key_id, str) or key_id not in keys:
        raise UnknownKey("the token is signed with a key that is not known here: issue a new one")
    return jwt.decode(
        token,
        keys[key_id],
        algorithms=[ALGORITHM],
        issuer=issuer,
        audience=audience,
        leeway=LEEWAY_S,
        options={"require": ["iss", "aud", "sub", "jti", "iat", "exp", "role"], "strict_aud": True},
    )
