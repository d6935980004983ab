"""Adapters made to do harm, by kind: each is written into the adapters folder as whoever may write there could.

The manifest's sums are right unless the manifest is what is spoiled, so that a refusal comes from the harm itself.
Leaves out weights that are merely bad: those are for the golden set and for live traffic.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import save

from tests.ratchet.adapters.making_adapters import card, config, tensors

CONFIG, WEIGHTS, CARD, MANIFEST = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_card.json",
    "manifest.json",
)
Q_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"

Json = dict[str, Any]


@dataclass(frozen=True)
class Hostile:
    """`files`: in place of a good adapter's. `manifest` changes its fields; `after` is given the folder."""

    kind: str
    files: dict[str, bytes] = field(default_factory=dict)
    manifest: Callable[[Json], Json | bytes] = lambda fields: fields
    after: Callable[[Path], None] = lambda folder: None

    def __repr__(self) -> str:
        return self.kind

    def write(self, adapters_dir: Path, agent_id: str = "small", version: str = "v1.0.1") -> Path:
        """The folder. What is moved out of `adapters_dir` is at most two folders above it."""
        folder = adapters_dir / agent_id / version
        folder.mkdir(parents=True)
        files = {CONFIG: config(), WEIGHTS: save(tensors()), CARD: card().encode()} | self.files
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        sums = {name: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()} for name, one in files.items()}
        good = {"schema_version": "adapter_manifest.v1", "agent_id": agent_id, "version": version, "files": sums}
        manifest = self.manifest(good)
        (folder / MANIFEST).write_bytes(manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode())
        self.after(folder)
        return folder


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + b"1" + closing * depth


# --- configurations ---

REGULAR_EXPRESSIONS = st.sampled_from(
    [
        r"(([a-z_]+)+[.]?)+!",
        r"(a|a)*b",
        r"(.*)*x",
        r".*\.q_proj",
        "q_proj|v_proj",
        "^q_proj",
        "q_proj$",
        "(",
        "[",
        r"\w+",
    ]
)
PATTERNS = REGULAR_EXPRESSIONS | st.text("([.*+?^$|\\{é\x00\ud800 ", min_size=1, max_size=60)


def spoiled_config(fields: Json) -> Hostile:
    return Hostile(f"config {str(fields)[:80]}", {CONFIG: config(**fields)})


NON_EMPTY = st.sampled_from([True, 1, "x", [1], {"a": 1}, ["lm_head"], "(a+)+$"])
UNSERVED = st.sampled_from(
    [
        "use_dora",
        "modules_to_save",
        "lora_bias",
        "layer_replication",
        "layers_pattern",
        "trainable_token_indices",
        "target_parameters",
        "alora_invocation_tokens",
        "megatron_config",
        "use_qalora",
        "arrow_config",
        "kasa_config",
        "an_option_of_tomorrow",
        "auto_map",
        "trust_remote_code",
    ]
)
FIELDS: st.SearchStrategy[Json] = st.one_of(
    PATTERNS.map(lambda key: {"rank_pattern": {key: 4}}),
    PATTERNS.map(lambda key: {"alpha_pattern": {key: 4.0}}),
    PATTERNS.map(lambda key: {"exclude_modules": key}),
    PATTERNS.map(lambda key: {"exclude_modules": ["k_proj", key]}),
    PATTERNS.map(lambda key: {"target_modules": key}),
    PATTERNS.map(lambda key: {"target_modules": ["q_proj", "v_proj", key]}),
    st.builds(lambda name, value: {name: value}, UNSERVED, NON_EMPTY),
    st.sampled_from([0, -4, 10**6, 10**300, "four", None, [4], 2.5]).map(lambda r: {"r": r}),
    st.sampled_from([1e30, -1e30, "much", [8]]).map(lambda alpha: {"lora_alpha": alpha}),
    st.sampled_from(["pissa", "olora", "corda", "loftq", "x" * 10_000]).map(lambda one: {"init_lora_weights": one}),
    st.sampled_from(["IA3", "LORA\n" * 5000, "", 7]).map(lambda one: {"peft_type": one}),
    st.sampled_from(["all", "lora_only", "y" * 9999]).map(lambda one: {"bias": one}),
    st.integers(257, 5000).map(lambda n: {"rank_pattern": {f"layers.{i}.q_proj": 4 for i in range(n)}}),
    st.just({"rank_pattern": {"q_proj": 8}}),
)
CONFIGS = st.one_of(
    FIELDS.map(spoiled_config),
    st.sampled_from(
        [
            b"",
            b"{",
            b"null",
            b"[]",
            b"\xff\xfe{}",
            nested(100_000),
            nested(100_000, b'{"a":', b"}"),
            b" " * 2**20,
            config()[:-1] + b', "r": NaN}',
            config()[:-1] + b', "r": 8, "r": 4}',
            b'{"r":' + b"9" * 5000 + b"}",
        ]
    ).map(lambda content: Hostile(f"config {content[:20]!r}…", {CONFIG: content})),
)

# --- weights ---


def with_header(header: bytes | Json, data: bytes = b"") -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data


def taken_apart() -> tuple[Json, bytes]:
    content = save(tensors())
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def spoiled_tensor(changed: Json) -> Hostile:
    header, data = taken_apart()
    return Hostile(f"tensor {str(changed)[:60]}", {WEIGHTS: with_header(header | {Q_A: header[Q_A] | changed}, data)})


def many_tensors(count: int) -> Hostile:
    entry = b'{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = b"{" + b",".join(b'"n%d":%b' % (number, entry) for number in range(count)) + b"}"
    return Hostile(f"{count} tensors", {WEIGHTS: with_header(header)})


def named(name: str) -> Hostile:
    header, data = taken_apart()
    header[name] = header.pop(Q_A)
    return Hostile(f"tensor named {name[:40]!r}", {WEIGHTS: with_header(header, data)})


def unsound(number: float, kind: str, place: int) -> Hostile:
    weights = {name: tensor.astype(kind) for name, tensor in tensors().items()}
    with np.errstate(over="ignore"):
        weights[Q_A].flat[place] = number
    return Hostile(f"{number} as {kind}", {WEIGHTS: save(weights)})


def cut(content: bytes, place: int) -> Hostile:
    return Hostile(f"weights cut at {place}", {WEIGHTS: content[:place]})


HUGE = 10**18
TENSORS: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from(["I8", "F8_E4M3", "BOOL", "x" * 9999, 7, None, ["F32"]]).map(lambda one: {"dtype": one}),
    st.sampled_from(
        [[-4, -8], [HUGE, HUGE], [2] * 4000, [True, 32], [4.0, 8], ["4", 8], 32, None, [], [32], [10**4000, 1], [0, 8]]
    ).map(lambda shape: {"shape": shape}),
    st.sampled_from([[0, 4], [-128, 0], [0, HUGE], [128, 0], [0], [0, 64, 128], "ab", None, [True, 128], [1, 129]]).map(
        lambda offsets: {"data_offsets": offsets}
    ),
)
NAMES = st.one_of(
    st.text(min_size=1, max_size=50).filter(lambda text: "lora" not in text and text != "__metadata__"),
    st.sampled_from(["x" * 600, "../../etc/passwd", "base_model.model.lm_head.weight", "é\n" * 200, "a." * 250 + "b"]),
    st.sampled_from([f"base_model.model.{'m.' * 200}q_proj.lora_A.weight", Q_A.upper(), f"{Q_A}.", f" {Q_A}"]),
)
WEIGHT_FILES = st.one_of(
    TENSORS.map(spoiled_tensor),
    NAMES.map(named),
    st.integers(1, 30_000).map(many_tensors),
    st.builds(
        unsound,
        st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**17]),
        st.sampled_from(["f4", "f8"]),
        st.integers(0, 31),
    ),
    st.integers(0, 900).map(lambda place: cut(save(tensors()), place)),
    st.sampled_from(
        [
            with_header(nested(200_000)),
            with_header(nested(100_000, b'{"a":', b"}")),
            with_header(b"{}"),
            b"\x80\x04.",
            (2**63).to_bytes(8, "little") + b"{}",
            with_header(b" " * 2**21),
            save(tensors()) + b"more",
            b"",
            with_header(b'{"' + Q_A.encode() + b'":{},"' + Q_A.encode() + b'":{}}'),
        ]
    ).map(lambda content: Hostile(f"weights {content[:30]!r}…", {WEIGHTS: content})),
)

# --- card and manifest ---

CARDS = st.sampled_from(
    [
        b"",
        b"{}",
        b"[]",
        nested(100_000),
        b"\xff",
        b" " * 2**20,
        card().encode()[:-9],
        card(hyperparameters={"x": "y" * 2**19}).encode(),
        card().encode().replace(b'"5555', b'"6666'),
    ]
).map(lambda content: Hostile(f"card {content[:30]!r}…", {CARD: content}))


def listing(**changed: Any) -> Hostile:
    return Hostile(f"manifest {str(changed)[:60]}", manifest=lambda fields: fields | changed)


def entry(name: str, **changed: Any) -> Hostile:
    def changing(fields: Json) -> Json:
        known = fields["files"].get(name, {"size": 0, "sha256": "0" * 64})
        return fields | {"files": fields["files"] | {name: known | changed}}

    return Hostile(f"manifest entry {name[:40]!r} {str(changed)[:40]}", manifest=changing)


MANIFESTS = st.one_of(
    st.sampled_from(["../../secret.json", "/etc/passwd", "missing.json", ".", "a/../b.json", "x\n.json", ""]).map(
        entry
    ),
    st.sampled_from([{"size": 1}, {"size": -1}, {"size": HUGE}, {"sha256": "0" * 64}, {"sha256": "z"}]).map(
        lambda changed: entry(WEIGHTS, **changed)
    ),
    st.sampled_from([{"agent_id": "other"}, {"version": "v9.9.9"}, {"version": "x"}, {"files": {}}, {"files": []}]).map(
        lambda changed: listing(**changed)
    ),
    st.integers(300, 1200).map(
        lambda count: listing(files={f"{number}.json": {"size": 0, "sha256": "0" * 64} for number in range(count)})
    ),
    st.sampled_from([b"", b"{", nested(100_000), b" " * 2**20, b"\x00"]).map(
        lambda content: Hostile(f"manifest {content[:20]!r}…", manifest=lambda _: content)
    ),
)

# --- files and links ---


def linked(name: str) -> Callable[[Path], None]:
    """Return a change that replaces a file by a link to the same bytes outside, where they can be changed later."""

    def change(folder: Path) -> None:
        outside = folder.parent.parent.parent / "outside"
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return change


def version_link(folder: Path) -> None:
    outside = folder.parent.parent.parent / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)


def agent_link(folder: Path) -> None:
    version_link(folder.parent)


def relative_link(folder: Path) -> None:
    folder.rename(folder.parent / "other")
    folder.symlink_to("other")


def endless_link(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(WEIGHTS)


def pipe(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def in_place_of(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def extra(name: str | bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x80\x04.")

    return change


def crowded(count: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for number in range(count):
            (folder / f"{number}.txt").touch()

    return change


def sparse(name: str) -> Callable[[Path], None]:
    """Return a change that makes a file a terabyte long without a byte on the disk."""

    def change(folder: Path) -> None:
        os.truncate(folder / name, 2**40)

    return change


def with_sparse_entry(folder: Path) -> None:
    sparse(WEIGHTS)(folder)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["files"][WEIGHTS]["size"] = 2**40
    (folder / MANIFEST).write_text(json.dumps(manifest))


NAMES_OF_FILES = st.sampled_from([CONFIG, WEIGHTS, CARD, MANIFEST])
FOLDERS = st.one_of(
    NAMES_OF_FILES.map(lambda name: Hostile(f"{name} is a link", after=linked(name))),
    NAMES_OF_FILES.map(lambda name: Hostile(f"{name} is a pipe", after=pipe(name))),
    NAMES_OF_FILES.map(lambda name: Hostile(f"{name} is a folder", after=in_place_of(name))),
    NAMES_OF_FILES.map(lambda name: Hostile(f"{name} of a terabyte", after=sparse(name))),
    st.sampled_from([version_link, agent_link, relative_link, endless_link, with_sparse_entry]).map(
        lambda change: Hostile(change.__name__, after=change)
    ),
    st.sampled_from(
        ["new_embeddings.bin", "modeling.py", "a/b/c/d/e/f/g/h/i/j.json", b"\xff\xfe.json", "x\n.json", "w.pkl"]
    ).map(lambda name: Hostile(f"extra file {name!r}", after=extra(name))),
    st.sampled_from(["weights.bin", "code.py", "w.pkl", "lib.so", "config.json", "vocab\u202e.json"]).map(
        lambda name: Hostile(f"listed file {name}", {name: b"\x80\x04."})
    ),
    st.integers(300, 2000).map(lambda count: Hostile(f"{count} files", after=crowded(count))),
)

HOSTILE_ADAPTERS: st.SearchStrategy[Hostile] = st.one_of(CONFIGS, WEIGHT_FILES, CARDS, MANIFESTS, FOLDERS)
