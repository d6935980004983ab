"""Holds what a fleet on one machine can be told: the options of `ratchet up`, kept in the record of what it started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.models.known import KNOWN
from workbench.sandbox.bubblewrap import missing_programs

SMALL_MODEL = "models/small"
JUDGE_MODEL = "models/judge"
SMALL_MAX_TOKENS = 16
"""The value of RATCHET_MAX_TOKENS for the small model that is made here, where nobody says otherwise: it was made for
answers of five letters, and does not always find the end of others. docker-compose.yml has the same."""
BIG_AGENT = "big"
"""The agent of the bigger model that answers in the first one's place."""
AGENT = "agent"
"""The names of agents' processes begin so."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """`agents` are those started here, `replicas` the processes of each; ports are TCP ports of this machine.

    An engine that has nothing to train (echo, scripted) goes without a trainer, and so does a fleet with no agent of
    its own.
    `manager`: with a process that takes jobs.
    `own_vllm`: with a vLLM server beside each agent, which is started with `vllm_args`, too.
    `big`: the bigger model that answers in place of the first agent: a folder, a hub name or a URL; none if empty.
    `programs` is the file of the programs that answer agents' tasks, with a runner for them; nobody's if empty.
    `external_agents` and, with `no_scorer`, the scorer are programs of somebody else's, which connect by themselves.
    """

    agents: tuple[str, ...] = ("small",)
    replicas: int = 1
    engine: str = "transformers"
    scorer: str = "likelihood"
    model: str = SMALL_MODEL
    judge_model: str = JUDGE_MODEL
    port_base: int = 8700
    amqp_port: int = 5673
    trainer: bool = True
    auditor: str = ""
    external_agents: tuple[str, ...] = ()
    no_scorer: bool = False
    programs: str = ""
    manager: bool = False
    own_vllm: bool = False
    vllm_args: str = ""
    big: str = ""

    @property
    def own_agents(self) -> tuple[str, ...]:
        """All that are started here."""
        return (*self.agents, *([BIG_AGENT] if self.big and BIG_AGENT not in self.agents else []))

    @property
    def big_has_url(self) -> bool:
        return self.big.startswith(("http://", "https://"))

    @property
    def fleet_agents(self) -> tuple[str, ...]:
        """All it sends work to; the first answers tasks that name none."""
        return (*self.own_agents, *self.external_agents)

    @property
    def external(self) -> tuple[str, ...]:
        """Consumers of queues that are not started here, as the topology calls them."""
        return (*(f"agent {name}" for name in self.external_agents), *(["scorer"] if self.no_scorer else []))

    @property
    def agent_processes(self) -> int:
        return len(self.own_agents) * self.replicas

    @property
    def with_trainer(self) -> bool:
        return self.trainer and self.has_model and bool(self.agents)

    @property
    def with_runner(self) -> bool:
        """Tell whether a runner is started: for the programs of the file, or for agents registered with the manager,
        where this machine has sandboxes."""
        return bool(self.programs) or (self.manager and bool(self.agents) and not missing_programs())

    @property
    def has_model(self) -> bool:
        """Tell whether there is anything to train behind its agents."""
        return self.engine not in ("echo", "scripted")

    @property
    def answers_with_small_model(self) -> bool:
        """Tell whether its agents' model is the small one that can be made here."""
        return self._loads_model and self.model == SMALL_MODEL

    @property
    def models_to_make(self) -> bool:
        """Tell whether one of the two models that can be made here is needed and not there."""
        needed = [SMALL_MODEL] if self.answers_with_small_model else []
        if "likelihood" in f"{self._own_scorer} {self.auditor}" and self.judge_model == JUDGE_MODEL:
            needed.append(JUDGE_MODEL)
        needed += [JUDGE_MODEL] if self.big == JUDGE_MODEL else []
        return any(not (Path(model) / "config.json").exists() for model in needed)

    @property
    def models_to_find(self) -> tuple[str, ...]:
        """Return the models its processes load that must be there before the start: those made here need not."""
        loaded = [self.model] if self._loads_model and self.model != SMALL_MODEL else []
        if "likelihood" in f"{self._own_scorer} {self.auditor}" and self.judge_model != JUDGE_MODEL:
            loaded.append(self.judge_model)
        if self.big and not self.big_has_url and self.big != JUDGE_MODEL:
            loaded.append(self.big)
        return tuple(dict.fromkeys(loaded))

    @property
    def known_models(self) -> tuple[str, ...]:
        """Return those of its models that are named rather than lying in a folder."""
        return tuple(one for one in self.models_to_find if one in KNOWN and not (Path(one) / "config.json").exists())

    @property
    def _loads_model(self) -> bool:
        return (self.engine == "transformers" or self.own_vllm) and bool(self.agents)

    @property
    def _own_scorer(self) -> str:
        return "" if self.no_scorer else self.scorer


def agent_of(program: str, options: FleetOptions) -> str:
    """`agent-small` and `agent-small-2` are the agent small, where several replicas run."""
    found = program.removeprefix(AGENT).removeprefix("-") or options.agents[0]
    base, _, replica = found.rpartition("-")
    return base if replica.isdigit() and base in options.own_agents and found not in options.own_agents else found
