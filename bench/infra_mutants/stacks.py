"""The stacks that mutants are rendered for: between them they run every line of the program."""

from __future__ import annotations

from typing import Any

from infra.render.recording import stack_configuration

PROGRAMS = """
[agents.small]
programs = ["shell"]
"""


def configurations() -> dict[str, dict[str, Any]]:
    """Return the stacks by name: `everything` on GPUs with KEDA, `dev` without, `elsewhere` with what these lack."""
    everything, dev, elsewhere = (stack_configuration(name) for name in ("prod", "dev", "prod"))
    everything["ratchet:fleet"] |= {
        "queueNamespace": "blue.",
        "runner": {"programs": PROGRAMS, "folder": "agents-of-the-site", "packageAccess": True},
        "workspaceUrls": ["https://github.com/our-team/"],
        "hubTokenSecret": "hugging-face",
        "auditor": {"strategy": "verifier:exact"},
        "scheduling": {
            "priorities": True,
            "queue": "gpus",
            "quota": {"cpu": "200", "memory": "1Ti", "gpus": 24, "pods": 90},
        },
        "backups": {"claim": "backups-of-the-site", "keySecret": "backup-key"},
    }
    everything["ratchet:fleet"]["images"] |= {"pullSecret": "registry", "digests": {"agent": f"sha256:{'0' * 64}"}}
    everything["ratchet:fleet"]["scorer"]["strategy"] = "0.8*tests + 0.2*judge:absolute"
    several = {"fsdp": True, "machines": 2, "resources": {"cpu": "8", "memory": "64Gi", "gpus": 2}}
    everything["ratchet:fleet"]["trainer"] |= several
    everything["ratchet:fleet"]["judge"] |= {"machines": 2}
    everything["ratchet:fleet"]["api"]["revoked"] = [{"tokenId": "a", "expiresAt": 1}]
    dev["ratchet:fleet"]["scorer"]["strategy"] = "likelihood"
    dev["ratchet:fleet"] |= {"shards": 2, "apiServer": {"cidrs": ["10.0.0.5/32"]}}
    dev["ratchet:fleet"]["monitoring"] = {"runbooks": "https://docs.example.com/operations/"}
    elsewhere["ratchet:fleet"] |= {
        "externalScorer": True,
        "runner": {"programs": PROGRAMS},
        "sandbox": {"isolation": "gvisor"},
        "auditor": {"strategy": "0.8*tests + 0.2*judge:absolute"},
        "judge": {"model": "/models/judge", "resources": {"cpu": "4", "memory": "32Gi", "gpus": 1}},
        "hubAccess": False,
        "agents": [
            {"id": "small", "resources": {"cpu": "4", "memory": "16Gi", "gpus": 1}},
            {"id": "other", "engine": "echo", "maxReplicas": 2},
        ],
        "trainer": {"device": "cuda", "resources": {"cpu": "4", "memory": "16Gi", "gpus": 1}},
    }
    elsewhere["ratchet:fleet"]["scorer"]["strategy"] = "verifier:exact"
    return {"everything": everything, "dev": dev, "elsewhere": elsewhere}
