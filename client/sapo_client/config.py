"""All settings, with bounds and defaults; `config_layers` finds their values.

Learner defaults follow SAPO (arXiv 2509.08721): four own and four external groups of eight completions,
temperature 1. The learning rate is our own, by the model's size: the published ones disagree.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sapo_client.paths import default_data_folder
from sapo_client.plugins import LOSSES, STRATEGIES, TASK_SAMPLERS, check_name
from sapo_client.units import KIB, MIB

SERVICE_START_SECONDS = 900
"""Time limit of a start, which may download a model; service managers wait this long."""

LAST_CHECKPOINT_SECONDS = 420.0
"""Longest time that a stopping node waits for its last checkpoint; service managers give it more to stop."""

_SHARE = re.compile(r"[0-9]{1,2}/[1-9][0-9]?")

UserPath = Annotated[Path, AfterValidator(Path.expanduser)]


def _share(text: str) -> str:
    """Return the text if it is a share of the form K/N with K below N."""
    machine, _, machines = text.partition("/")
    if not (_SHARE.fullmatch(text) and int(machine) < int(machines)):
        raise ValueError("machine K of N is written K/N, counted from 0: 0/2 and 1/2 are two machines")
    return text


def _web_address(text: str) -> str:
    """Return the text if it can be the address of a web server."""
    if not re.match(r"https?://[^/\s]", text):
        raise ValueError("an address begins with http:// or https:// and names a host")
    return text


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SwarmConfig(_Section):
    """The swarm, and the addresses of this node."""

    listen: tuple[str, ...] = Field(
        default=("/ip4/0.0.0.0/tcp/0",),
        min_length=1,
        description="multiaddresses to listen on; port 0 takes that of the last start, or any free one",
    )
    bootstrap: tuple[str, ...] = Field(
        default=(), description="multiaddresses of nodes to connect to first, besides those of the manifest"
    )
    mdns: bool = Field(
        default=True,
        description="find nodes of the swarm in the local network (mDNS), and be found there; not if the node"
        " listens on loopback alone",
    )
    upnp: bool = Field(
        default=True,
        description="ask the router to forward a port to this node (UPnP) while peers cannot connect to it",
    )
    alone: bool = Field(
        default=False, description="train without a swarm and without a chain; nothing is shared"
    )
    manifest: UserPath | None = Field(
        default=None, description="manifest file of the swarm; unset: that of the data directory"
    )
    slot_share: Annotated[str, AfterValidator(_share)] = Field(
        default="0/1",
        description="machine K of N that run for one account, as K/N counted from 0: it uses every Nth slot",
    )
    listen_before_signing_seconds: float = Field(
        default=20.0,
        ge=0,
        le=3600,
        description="time in which a start listens for another process of the same identity before it signs",
    )


class LearnerConfig(_Section):
    """The policy and its training."""

    backend: str = Field(
        default="transformers",
        pattern=r"^(transformers|vllm|tinker|endpoint|human)$",
        description="what generates answers: a model that is trained here (transformers, or vllm to sample"
        " with vLLM) or on a server of the Tinker API (tinker), or without training an OpenAI-compatible"
        " server (endpoint) or a person at the terminal (human)",
    )
    model: str = Field(
        default="bundled",
        min_length=1,
        description="`bundled`, `bundled-chatty`, a Hugging Face model name, or a folder that holds a model;"
        " for an endpoint, the server's name of its model",
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="URL of the server: for an endpoint including the version, as in"
        " http://127.0.0.1:8000/v1; for tinker, unset is Thinking Machines'",
    )
    endpoint_key_file: UserPath | None = Field(
        default=None, description="file with the server's key, which is sent as a bearer token"
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda)$",
        description="auto, cpu or cuda; auto takes CUDA where there is one",
    )
    ranks: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        default=1,
        description="processes that share the model, one per GPU; auto: as many as there are GPUs",
    )
    ranks_socket: UserPath | None = Field(
        default=None,
        description="Unix socket of such processes on several machines that torchrun has started",
    )
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="learning rate of the optimiser; unset: by the model's size"
    )
    completions: int = Field(default=8, ge=2, le=16, description="completions per rollout (the paper's L)")
    local_groups: int = Field(default=4, ge=1, le=256, description="own rollouts per step (the paper's I)")
    more_external_than_own: bool = Field(
        default=False,
        description="allow more rollouts of others than own ones; too much text of others makes training"
        " unstable",
    )
    external_groups: int = Field(
        default=4,
        ge=0,
        le=256,
        validate_default=True,
        description="rollouts of others per step (the paper's J), by default at most as many as own ones",
    )
    passes: int = Field(default=1, ge=1, le=64, description="optimisation epochs per batch (PPO's K)")
    mini_batches: int = Field(default=1, ge=1, le=1024, description="optimiser steps per pass over a batch")
    kl_weight: float = Field(
        default=0.0, ge=0, le=10, description="weight of the divergence from the starting model in the loss"
    )
    loss: str = Field(
        default="dapo",
        pattern=r"^(dapo|dr_grpo|gspo|cispo)$",
        description="form of the loss of own answers: dapo, dr_grpo, gspo or cispo",
    )
    overlap: bool = Field(
        default=False,
        description="sample the next round while the present one trains: its answers are one step old; takes"
        " a copy of what is trained, and on a CPU another core",
    )
    sequence_ratio_cap: float = Field(
        default=3.0,
        ge=0,
        le=1000,
        description="an own answer is not trained if the policy finds it more than this many times as likely"
        " as its sampler did; 0: no such bound",
    )
    length_normalised: bool = Field(
        default=False,
        description="average the loss over each completion's tokens first (GRPO), not over all tokens (DAPO)",
    )
    own_baseline: bool = Field(
        default=False,
        description="baseline of others' answers: this node's success rate in their family, not the mean of"
        " their group",
    )
    external_loss: Annotated[str, AfterValidator(partial(check_name, LOSSES))] = Field(
        default="reinforce",
        description="loss of others' answers: reinforce (the paper's), negative_weighted, tapered, positive,"
        " capability or an installed plug-in",
    )
    agreement: bool | None = Field(
        default=None,
        description="with sampler.text_use = reinforce, train only those answers of others that the gradient"
        " of the own groups agrees with; unset: yes, but not with learner.backend = tinker",
    )
    demonstrations_per_step: int = Field(
        default=64,
        ge=0,
        le=4096,
        description="others' right answers trained per step in families where this node fails; 0 for none",
    )
    demonstration_rate: float | None = Field(
        default=None, gt=0, le=1, description="learning rate for these answers; unset: by the model's size"
    )
    demonstration_steps: int | None = Field(
        default=None, ge=1, le=1000, description="such training steps per round; unset: by the model's size"
    )
    demonstration_averaging: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="decay of the average of the weights over these steps, which becomes the policy; 0: the"
        " last weights are the policy; unset: by the model's size",
    )
    comparison_tasks: int = Field(
        default=64,
        ge=0,
        le=4096,
        description="tasks that the policy and this average both answer after a round, until the average is"
        " right more often and becomes the policy; 0: it is the policy from the start",
    )
    demonstration_weighting: str = Field(
        default="plain",
        pattern=r"^(plain|luffy|chord)$",
        description="weight of these answers' tokens: plain (1), luffy (most at probability 0.1) or chord"
        " (p(1-p))",
    )
    need_below: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="own success rate in a family from which others' right answers are not needed",
    )
    bfloat16: bool | None = Field(
        default=None,
        description="matrix products of training in bfloat16, on a CPU of sampling, too; unset: where the"
        " GPU or CPU has bfloat16, and in float16 on a GPU without",
    )
    base: str = Field(
        default="auto",
        pattern=r"^(auto|float32|bfloat16|float16|nf4)$",
        description="data type of the model under adapters (lora_rank), which is frozen: auto (16 bits on"
        " CUDA), float32, bfloat16, float16 or nf4 (4 bits)",
    )
    optimizer: str = Field(
        default="adamw",
        pattern=r"^(adamw|adamw8bit)$",
        description="adamw, or adamw8bit with moments in 8 bits: a quarter of their memory",
    )
    lora_rank: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="rank of low-rank adapters (LoRA) to train instead of the model; 0 for none",
    )
    gradient_checkpointing: bool | None = Field(
        default=None,
        description="recompute activations instead of storing them: slower, much less memory; unset: where"
        " memory is short",
    )
    memory_gib: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="memory for training besides the model, GiB; unset: what is free at the start",
    )
    temperature: float = Field(default=1.0, gt=0, le=10, description="sampling temperature")
    max_new_tokens: int | None = Field(
        default=None,
        ge=1,
        le=8192,
        description="most tokens per completion; unset: enough for the longest answer of the swarm's tasks in"
        " the model's vocabulary, as far as its window allows",
    )
    threads: int = Field(default=1, ge=1, le=1024, description="CPU threads of the learner")
    leave_cores: int | None = Field(
        default=None,
        ge=0,
        le=1024,
        description="CPU cores for other processes; the learner uses the rest, instead of learner.threads",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of every random stream of this node")

    @field_validator("external_groups")
    @classmethod
    def _at_most_own(cls, external: int, others: ValidationInfo) -> int:
        own = others.data.get("local_groups", external)
        if external > own and not others.data.get("more_external_than_own"):
            raise ValueError(
                f"a step has {own} own groups, and more groups of others need"
                " learner.more_external_than_own = true"
            )
        return external

    @property
    def trains(self) -> bool:
        """Whether the backend trains a model."""
        return self.backend in ("transformers", "vllm", "tinker")


class SamplerConfig(_Section):
    """How a batch samples from the trusted rollouts; the caps of `verification` always apply."""

    strategy: Annotated[str, AfterValidator(partial(check_name, STRATEGIES))] = Field(
        default="weighted",
        description="uniform (the paper's), informative (by p(1-p) of the group),"
        " weighted (reputation x likelihood x freshness) or useful (reputation x how often the account's"
        " tasks taught this policy something x freshness), or an installed plug-in",
    )
    text_use: str = Field(
        default="imitate",
        pattern=r"^(reinforce|practise|imitate|hybrid|rationalise)$",
        description="what others' rollouts are used for: reinforce (their text enters the policy gradient, as"
        " in the paper), practise (the own policy answers their tasks), imitate (their right answers are"
        " demonstrations where the own policy fails), hybrid (practise and imitate) or rationalise (their"
        " right answers are hints for own steps)",
    )
    demonstrations: int = Field(
        default=64,
        ge=0,
        le=4096,
        description="most right answers of others per step, if they are imitated; half as many are read and"
        " not trained in families that this node knows, where they have text beside the answer",
    )
    learnable_tasks: bool = Field(
        default=False,
        description="draw own tasks more often from families in which some answers are right and some wrong",
    )
    task_sampler: Annotated[str, AfterValidator(partial(check_name, TASK_SAMPLERS))] | None = Field(
        default=None, description="installed plug-in that draws the families of own tasks instead"
    )

    @property
    def reinforces(self) -> bool:
        """Whether others' text enters the policy gradient."""
        return self.text_use == "reinforce"


class CanaryConfig(_Section):
    """Held-out items that detect harm by others' text to the policy, which is then rolled back."""

    every_rounds: int = Field(
        default=10, ge=0, le=100_000, description="rounds between two checks; 0 disables the canary"
    )
    items: int = Field(default=64, ge=1, le=4096, description="held-out items per check")
    tolerance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="not used any more; accepted so that a configuration of 0.1.0 opens",
    )


class VerificationConfig(_Section):
    """How rollouts of other accounts are checked."""

    workers: int = Field(default=1, ge=1, le=256, description="jailed checker processes")
    audit_share: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="share of admitted rollouts that is scored even if it is not sampled",
    )
    audit_time: float = Field(
        default=0.05,
        gt=0,
        le=1,
        description="largest share of a checker's time that these audits may take",
    )
    account_cap: float = Field(
        default=0.125,
        gt=0,
        le=1,
        description="largest share of the external groups of a batch for one account",
    )
    newcomer_cap: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="largest share of the external groups of a batch for all newcomers together",
    )
    network_cap: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="largest share of the external groups for all accounts behind one public /24 or IPv6 /48",
    )
    kept_rollouts_mib: int = Field(
        default=8192,
        ge=256,
        le=2**30,
        description="disk space for the rollouts of the last 16 epochs, a quarter of it for those of"
        " one epoch; when it is full, newcomers' are dropped first; 20 MiB for each account that fills 1,024"
        " slots an epoch are enough for all that are paid",
    )


class LedgerConfig(_Section):
    """The chain on which contributions are recorded."""

    enabled: bool = Field(default=True, description="take part in the ledger, if the manifest names one")
    rpc_urls: tuple[Annotated[str, AfterValidator(_web_address)], ...] = Field(
        default=(),
        description="http(s) addresses of the chain's JSON-RPC endpoints; important answers need a majority"
        " of them",
    )
    faucet: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="http(s) address that is asked for coins while the account has none to register with",
    )
    confirmations: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="blocks that confirm a transaction, its own included; more where the chain reorganises",
    )
    max_fee_gwei: float = Field(
        default=100.0,
        gt=0,
        le=1_000_000,
        description="highest price of a unit of gas; above it, transactions wait",
    )
    audit: bool = Field(default=False, description="count the contributions of epochs and sign their roots")


class ObserveConfig(_Section):
    """What this node reports about itself, on this machine only."""

    control_port: int = Field(
        default=0, ge=0, le=65535, description="loopback port of the control API; 0 takes any free one"
    )
    metrics: bool = Field(default=True, description="serve Prometheus metrics at /metrics of the control API")
    events_max_bytes: int = Field(
        default=64 * MIB, ge=MIB, description="size at which the event file is rotated"
    )
    events_keep: int = Field(default=5, ge=1, le=1000, description="rotated event files kept")
    tracker: str = Field(
        default="none",
        pattern=r"^(none|trackio|tensorboard)$",
        description="where the figures of every step are logged besides: none, trackio (in its own folder) or"
        " tensorboard (the folder tensorboard in the data directory)",
    )
    tracker_project: str = Field(default="sapo", min_length=1, description="trackio's project")
    disk_reserve_mib: int = Field(
        default=512, ge=0, description="free space of the data directory's disk below which the node warns"
    )
    log_level: str = Field(
        default="info",
        pattern=r"^(debug|info|warning|error)$",
        description="what a node logs to logs/sapo.log in its data directory: debug, info, warning or error",
    )
    webhook: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="http(s) address to which changes of the node's health are posted as JSON",
    )
    log_max_bytes: int = Field(default=16 * MIB, ge=64 * KIB, description="size at which that log is rotated")
    log_keep: int = Field(default=5, ge=1, le=1000, description="rotated logs kept")


class JudgeConfig(_Section):
    """Questions of the judge between steps, on tasks that no node chooses or trains on."""

    every: int = Field(
        default=0, ge=0, description="steps between two questions; 0 disables them; see `sapo lab judge`"
    )


class Config(_Section):
    """All settings."""

    identity: str | None = Field(
        default=None, description="identity file: a name in the key folder, or a path"
    )
    passphrase_file: UserPath | None = Field(
        default=None, description="file that holds the identity's passphrase"
    )
    data_dir: UserPath = Field(
        default_factory=default_data_folder, description="directory of this node's data"
    )
    swarm: SwarmConfig = SwarmConfig()
    learner: LearnerConfig = LearnerConfig()
    sampler: SamplerConfig = SamplerConfig()
    canary: CanaryConfig = CanaryConfig()
    verification: VerificationConfig = VerificationConfig()
    ledger: LedgerConfig = LedgerConfig()
    judge: JudgeConfig = JudgeConfig()
    observe: ObserveConfig = ObserveConfig()
