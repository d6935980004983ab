"""Checks of access to the API: every pod that listens to the network checks tokens, with public keys only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.cluster import Cluster, Pods
from ratchet.http.access.keys import (
    private_jwk,
    public_jwk,
    public_jwks,
    read_private_key,
    read_public_keys,
    read_revoked,
)
from ratchet.service.errors import SettingsError

PUBLIC_KEYS, HOST, AUDIT = "RATCHET_API_PUBLIC_KEYS", "RATCHET_HTTP_HOST", "RATCHET_API_AUDIT_DIR"
JWKS, REVOKED, SIGNING_KEY = "jwks.json", "revoked.txt", "signing-key.json"


def tokens_are_checked_with_public_keys(cluster: Cluster) -> Iterator[str]:
    """a service that listens to the network has public keys where it is told to look, and can write its audit"""
    for pods in cluster.pods:
        box = pods.spec["containers"][0]
        told = dict(cluster.environment(pods, box))
        if told.get(HOST, "127.0.0.1") != "127.0.0.1":
            yield from _keys(cluster, pods, box, told.get(PUBLIC_KEYS))
            folder = told.get(AUDIT)
            if folder is None or _mount(box, folder).get("readOnly", "name" not in _mount(box, folder)):
                yield f"{pods} can't write its audit: {AUDIT} is {folder!r}, where nothing is mounted to be written to"


def _keys(cluster: Cluster, pods: Pods, box: Mapping[str, Any], folder: str | None) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pods.spec.get("volumes", [])}
    volume = volumes.get(_mount(box, folder or "").get("name", ""), {})
    secret = cluster.get("Secret", volume.get("secret", {}).get("secretName", ""))
    jwks = (secret.content.get("stringData") or {}).get(JWKS) if secret else None
    if jwks is None:
        yield f"{pods} listens to the network, but there is no {JWKS} in {folder!r} ({PUBLIC_KEYS})"
    elif any("d" in key for key in json.loads(jwks)["keys"]):
        yield f"{secret} has a private key in it: whoever reads it can make tokens"


def keys_are_what_the_services_read(cluster: Cluster) -> Iterator[str]:
    """keys have the members that `ratchet token keys` would give them, and the revoked tokens are beside them"""
    revoked = {one.token_id for one in cluster.settings.api.revoked}
    for secret in cluster.all("Secret"):
        texts = secret.content.get("stringData") or {}
        if JWKS in texts:
            texts = {REVOKED: ""} | texts
        for name, text in texts.items():
            try:
                if name == REVOKED and set(read_revoked(text.encode())) != revoked:
                    yield f"{secret}: {REVOKED} has other tokens than those that the stack revokes"
                if name == JWKS and not _is_as_we_write_them(text):
                    yield f"{secret}: a key of {name} has other members than the services expect"
                if name == SIGNING_KEY and json.loads(text) != private_jwk(read_private_key(text.encode())):
                    yield f"{secret}: {name} has other members than the services expect"
            except SettingsError as error:
                yield f"{secret}: {name} can't be read: {error}"


def _is_as_we_write_them(jwks: str) -> bool:
    written = [public_jwk(key) for key in read_public_keys(jwks.encode()).values()]
    return public_jwks(jwks.encode()) == written


def _mount(box: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    found = (mount for mount in box.get("volumeMounts", []) if mount["mountPath"] == path)
    return dict(next(found, {}))
