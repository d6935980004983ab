"""Signed decisions: whoever can write the adapters folder, and nothing else, can't make a history of his own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ratchet.adapters.decisions import DecisionLedger
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.signatures import Signer, Signing
from ratchet.adapters.verification import verify_registry
from ratchet.files.hash_chain import Link, canonical, chain_line
from ratchet.service.errors import RegistryError
from schemas.records.decision import DecisionDraft, Freeze, SignWith, Unfreeze
from schemas.records.registry import Registry
from tests.ratchet.adapters.making_decisions import decided, draft

LIMITS = AdapterLimits(max_rank=16)
Fields = list[dict[str, Any]]


@dataclass
class House:
    """A fleet's folders. `store` is another process each time."""

    root: Path

    @property
    def signing(self) -> Signing:
        return Signing(self.root / "decision-keys", self.root / "logs")

    @property
    def store(self) -> RegistryStore:
        return RegistryStore(self.root / "adapters", self.signing)

    def decide(self, count: int = 1) -> Registry:
        for _ in range(count):
            frozen = self.store.read().agent("small").frozen
            decided(self.store, Unfreeze() if frozen else Freeze())
        return self.store.read()

    def faults(self) -> list[str]:
        return verify_registry(self.store, LIMITS).faults

    def write(self, lines: Fields, signer: Signer | None = None) -> None:
        """A ledger with these contents, properly chained, and the registry that it adds up to."""
        link, written = Link(), b""
        for fields in lines:
            content = {name: value for name, value in fields.items() if name not in ("key", "signature", "sha256")}
            if signer is not None:
                content |= {"sequence": link.sequence + 1, "previous_sha256": link.sha256}
                content = signer.sign(content)
            elif "signature" in fields:
                content |= {"key": fields["key"], "signature": fields["signature"]}
            link, line = chain_line(link, content)
            written += line + b"\n"
        self.store.ledger.path.write_bytes(written)
        self.store.path.unlink()

    @property
    def lines(self) -> Fields:
        return [json.loads(line) for line in self.store.ledger.path.read_bytes().splitlines()]


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Two decisions of an older version, unsigned; then the orchestrator started, and three more were made."""
    house = House(tmp_path)
    keyless = RegistryStore(tmp_path / "adapters")
    (tmp_path / "adapters").mkdir()
    decided(keyless, Freeze(), Unfreeze())
    house.store.open()
    house.decide(3)
    return house


def test_decisions_are_signed_from_the_first_start_on(house: House) -> None:
    found = verify_registry(house.store, LIMITS)
    assert (found.faults, found.decisions, found.signed) == ([], 5, 3)
    assert [line.get("key") for line in house.lines] == [None, None, *house.signing.keys() * 3]
    assert found.key == house.signing.keys()[0]
    private = house.root / "decision-keys" / "signing-key.json"
    assert private.stat().st_mode & 0o777 == 0o600


def test_a_signature_can_be_checked_without_this_program(house: House) -> None:
    line = house.lines[-1]
    signature = line.pop("signature")
    del line["sha256"]
    private = house.signing.signer()
    assert private is not None
    assert private.sign({name: value for name, value in line.items() if name != "key"})["signature"] == signature
    assert canonical(line) == json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def reworded(lines: Fields) -> Fields:
    return [*lines[:3], lines[3] | {"reason": "another"}, *lines[4:]]


def stripped(lines: Fields) -> Fields:
    return [{name: value for name, value in line.items() if name not in ("key", "signature")} for line in lines]


ATTACKS: dict[str, tuple[Callable[[Fields], Fields], Signer | None, str]] = {
    "rewritten and re-chained": (reworded, None, "line 4 .* its signature is not that of its key"),
    "an unsigned line of before rewritten": (
        lambda lines: [lines[0] | {"reason": "another"}, *lines[1:]],
        None,
        "line 3 .* its signature is not that of its key",
    ),
    "a line removed": (lambda lines: [*lines[:3], *lines[4:]], None, "line 4 .* its signature is not that of its key"),
    "one signature stripped": (
        lambda lines: [*lines[:4], *stripped(lines[4:])],
        None,
        "line 5 .* its signature is missing",
    ),
    "all signatures stripped": (stripped, None, "line 3 .* its signature is missing"),
    "signed with another key": (
        lambda lines: lines,
        Signer(Ed25519PrivateKey.generate()),
        r"line 3 .* by a key that nobody here knows",
    ),
    "a line added that nobody signed": (
        lambda lines: [*lines, stripped(lines)[3]],
        None,
        "line 6 .* its signature is missing",
    ),
    "cut short": (lambda lines: lines[:-1], None, "ends after decision 4, but 5 were decided"),
    "cut down to what was never signed": (lambda lines: lines[:2], None, "ends after decision 2, but 5 were decided"),
    "removed": (lambda lines: [], None, "ends after decision 0, but 5 were decided"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_done_to_the_ledger_is_found(house: House, attack: str) -> None:
    changed, signer, sentence = ATTACKS[attack]
    house.write(changed(house.lines), signer)
    with pytest.raises(RegistryError, match=sentence):
        house.store.replay()
    # and so it is by `verify`, and at the orchestrator's next start
    (fault,) = house.faults()
    assert "Restore the file" in fault
    with pytest.raises(RegistryError, match=sentence):
        house.store.open()
    # and when the next decision is made
    with pytest.raises(RegistryError, match=sentence):
        house.decide()


def test_a_thief_of_the_key_can_not_rewrite_what_was_decided(house: House) -> None:
    house.write(reworded(house.lines), house.signing.signer())
    (fault,) = house.faults()
    assert "was written anew: its decision 5 is another one than was decided" in fault


def test_a_new_key_is_named_by_the_old_one(house: House) -> None:
    old = house.signing.keys()[0]
    registry = house.store.rotate_key(lambda key: draft(SignWith(key=key), who="operator:ann"))
    house.decide(2)
    new = house.signing.keys()[0]
    assert [line.get("key") for line in house.lines[4:]] == [old, old, new, new]
    assert (registry.revision, registry.ledger_key, house.faults()) == (6, new, [])


def test_a_key_put_in_its_place_names_itself(house: House) -> None:
    # given another key in the folder, as from a cluster's secrets, with both public ones
    house.signing.make_key()
    old, new = reversed(house.signing.keys())
    house.decide(2)
    assert [(line["key"], line["move"]["kind"]) for line in house.lines[4:]] == [
        (old, "freeze"),
        (new, "sign_with"),
        (new, "unfreeze"),
        (new, "freeze"),
    ]
    assert house.faults() == []
    # but a key that is not in the folder can't
    shutil.rmtree(house.root / "decision-keys")
    with pytest.raises(RegistryError, match="by a key that nobody here knows"):
        house.store.replay()


def test_who_has_no_key_can_read_and_is_told_where_to_decide(house: House) -> None:
    elsewhere = RegistryStore(house.root / "adapters", Signing(house.root / "none", house.root / "no-logs"))
    assert elsewhere.read().revision == 5
    for store in (elsewhere, RegistryStore(house.root / "adapters")):
        with pytest.raises(RegistryError, match=r"the key to sign this one with is missing.* over the API"):
            decided(store, Unfreeze())
    assert house.store.read().revision == 5


@pytest.mark.parametrize("lost", ["key", "lines", "signatures"])
def test_what_is_lost_for_good_is_accepted_under_a_name(house: House, lost: str) -> None:
    if lost == "key":
        shutil.rmtree(house.root / "decision-keys")
    elif lost == "lines":
        house.write(house.lines[:4])
    else:  # a while under an older version, which signs nothing
        house.write([*house.lines, stripped(house.lines)[3]])
    with pytest.raises(RegistryError, match="`ratchet adapters accept`"):
        house.store.open()

    def accepted(key: str) -> DecisionDraft:
        return draft(SignWith(key=key), who="operator:ann")

    before = len(house.lines)
    registry = house.store.accept(accepted)
    assert (registry.revision, house.lines[-1]["who"]) == (before + 1, "operator:ann")
    # then all goes on, signed, and what comes after is watched as before
    assert house.store.open() == house.store.read()
    house.decide(2)
    assert house.faults() == []
    house.write(house.lines[:-1])
    assert "but" in house.faults()[0]


def test_lost_logs_take_the_head_with_them_and_the_next_start_makes_it_anew(house: House) -> None:
    shutil.rmtree(house.root / "logs")
    house.store.open()
    assert house.faults() == []
    house.write(house.lines[:-1])
    assert "but 5 were decided" in house.faults()[0]


def test_a_crash_between_the_line_and_the_head_is_no_fault(house: House) -> None:
    head = (house.root / "logs" / "decisions-head.json").read_bytes()
    house.decide()
    (house.root / "logs" / "decisions-head.json").write_bytes(head)
    assert house.faults() == []
    assert house.store.open().revision == 6
    assert (house.root / "logs" / "decisions-head.json").read_bytes() != head


def test_a_reader_without_keys_still_finds_a_forged_line(house: House) -> None:
    house.write(reworded(house.lines))
    with pytest.raises(RegistryError, match=r"line 4 .* its signature is not that of its key"):
        list(DecisionLedger(house.root / "adapters").read())
