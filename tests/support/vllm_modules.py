"""vLLM's interfaces as far as a learner calls them, with policies on a CPU behind them.

Constructors take what a learner uses of what vLLM documents, so that a wrong name fails. Tests put them in
place of the package, which needs an environment of its own.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import Policy, load_policy


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """``vllm.SamplingParams``."""

    n: int
    temperature: float
    max_tokens: int
    logprobs: int
    seed: int
    stop_token_ids: list[int]
    detokenize: bool


@dataclass(frozen=True)
class LoRARequest:
    """``vllm.lora.request.LoRARequest``."""

    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass(frozen=True)
class Logprob:
    """``vllm.logprobs.Logprob``."""

    logprob: float


@dataclass(frozen=True)
class CompletionOutput:
    """``vllm.outputs.CompletionOutput``."""

    token_ids: Sequence[int]
    logprobs: list[dict[int, Logprob]]


@dataclass(frozen=True)
class RequestOutput:
    """``vllm.outputs.RequestOutput``."""

    outputs: list[CompletionOutput]


@dataclass(kw_only=True)
class LLM:
    """``vllm.LLM``: one engine in this process.

    Attributes:
        takes_weights: whether ``reload_weights`` has an effect.
        requests: adapters of the calls so far.
    """

    model: str
    dtype: str
    max_model_len: int
    enforce_eager: bool
    seed: int
    distributed_executor_backend: str
    logprobs_mode: str
    generation_config: str
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    takes_weights: bool = field(default=True, init=False)
    requests: list[LoRARequest | None] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        assert (self.logprobs_mode, self.generation_config) == ("processed_logprobs", "vllm")
        self._policy = load_policy(self.model, "cpu")
        self._adapted: dict[int, PeftModel] = {}

    def generate(
        self,
        prompts: list[dict[str, list[int]]],
        sampling_params: list[SamplingParams],
        *,
        use_tqdm: bool,
        lora_request: LoRARequest | None,
    ) -> list[RequestOutput]:
        """Return one output for each prompt."""
        assert not use_tqdm
        self.requests.append(lora_request)
        policy = self._with(lora_request)
        asked = zip(prompts, sampling_params, strict=True)
        return [_sampled(policy, prompt["prompt_token_ids"], params) for prompt, params in asked]

    def collective_rpc(self, method: str, kwargs: dict[str, Iterable[tuple[str, Tensor]]]) -> None:
        """Call a method of the workers: ``reload_weights``, which takes every tensor of the checkpoint."""
        assert method == "reload_weights"
        weights = dict(kwargs["weights_iterator"])
        if self.takes_weights:
            self._policy.model.load_state_dict(weights)

    def reset_prefix_cache(self) -> bool:
        """Forget cached keys and values."""
        return True

    def _with(self, request: LoRARequest | None) -> Policy:
        """Return the policy with a request's adapters; a known number is not read again."""
        if request is None:
            return self._policy
        assert self.enable_lora
        if request.lora_int_id not in self._adapted:
            base = load_policy(self.model, "cpu").model
            adapted = PeftModel.from_pretrained(base, request.lora_path)
            assert next(iter(adapted.peft_config.values())).r <= self.max_lora_rank
            self._adapted = {request.lora_int_id: adapted.eval()}
        [model] = self._adapted.values()
        return Policy(model, self._policy.tokenizer, self._policy.device, self._policy.end, self._policy.pad)


def _sampled(policy: Policy, prompt: list[int], params: SamplingParams) -> RequestOutput:
    [group] = generator_for(policy).sample(
        [prompt],
        completions_per_prompt=params.n,
        max_new_tokens=params.max_tokens,
        temperature=params.temperature,
        seed=params.seed,
    )
    return RequestOutput(
        [
            CompletionOutput(
                item.tokens,
                [{token: Logprob(value)} for token, value in zip(item.tokens, item.logprobs, strict=True)],
            )
            for item in group
        ]
    )


@dataclass(frozen=True)
class HTTPVLLMWeightSyncClient:
    """``vllm.distributed.weight_transfer.HTTPVLLMWeightSyncClient``."""

    base_url: str
    timeout: float = 300


@dataclass(frozen=True)
class ParamMeta:
    """``vllm.distributed.weight_transfer.ParamMeta``."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class WeightSource(ABC):
    """``vllm.distributed.weight_transfer.WeightSource`` of vLLM 0.28 to 0.32."""

    @abstractmethod
    def metadata(self) -> list[ParamMeta]:
        """Return what iteration will yield."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights."""


class WeightSourceOf33(ABC):
    """``vllm.distributed.weight_transfer.WeightSource`` of vLLM 0.33."""

    def __init_subclass__(cls) -> None:
        assert isinstance(cls.__dict__["metadata"], cached_property)

    @property
    @abstractmethod
    def metadata(self) -> list[ParamMeta]:
        """What ``iter_full`` will yield."""

    @abstractmethod
    def iter_full(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights."""


AnyWeightSource = WeightSource | WeightSourceOf33


def _received(source: AnyWeightSource) -> dict[str, Tensor]:
    """Return a copy of a source's weights, each compared with what was announced."""
    if isinstance(source, WeightSource):
        announced, weights = source.metadata(), iter(source)
    else:
        announced, weights = source.metadata, source.iter_full()
    received = {}
    for meta, (name, weight) in zip(announced, weights, strict=True):
        assert (name, weight.dtype, tuple(weight.shape)) == (meta.name, meta.dtype, meta.shape)
        received[name] = weight.detach().clone()
    return received


@dataclass(frozen=True, kw_only=True)
class NCCLTrainerInitInfo:
    """``vllm.distributed.weight_transfer.nccl_engine.NCCLTrainerInitInfo``."""

    master_address: str
    master_port: int
    world_size: int
    rank: int
    packed: bool = False


class Transfers:
    """``WeightTransferTrainerFactory``, and the record of what its engines sent.

    Attributes:
        opened: place and client of each engine.
        sent: the tensors of each sending.
        failure: raised in place of the next sending.
    """

    def __init__(self) -> None:
        self.opened: list[tuple[NCCLTrainerInitInfo, HTTPVLLMWeightSyncClient]] = []
        self.sent: list[dict[str, Tensor]] = []
        self.failure: Exception | None = None

    def trainer_init(
        self, init_info: NCCLTrainerInitInfo, *, client: HTTPVLLMWeightSyncClient, source: AnyWeightSource
    ) -> Any:
        """Return an engine with ``send_weights``."""
        self.opened.append((init_info, client))
        transfers = self

        class Engine:
            def send_weights(self) -> None:
                if transfers.failure is not None:
                    raise transfers.failure
                transfers.sent.append(_received(source))

        return Engine()


def install(
    monkeypatch: pytest.MonkeyPatch, *, weight_source: type[AnyWeightSource] = WeightSource
) -> Transfers:
    """Put these interfaces in place of the package; return what is sent to servers."""
    transfers = Transfers()
    contents: dict[str, dict[str, object]] = {
        "vllm": {"LLM": LLM, "SamplingParams": SamplingParams},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": LoRARequest},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {
            "HTTPVLLMWeightSyncClient": HTTPVLLMWeightSyncClient,
            "ParamMeta": ParamMeta,
            "WeightSource": weight_source,
            "WeightTransferTrainerFactory": transfers,
        },
        "vllm.distributed.weight_transfer.nccl_engine": {"NCCLTrainerInitInfo": NCCLTrainerInitInfo},
        "vllm.utils": {},
        "vllm.utils.network_utils": {"get_ip": lambda: "127.0.0.1", "get_open_port": lambda: 29_500},
    }
    for name, content in contents.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        for key, value in content.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "sapo_client.learner.vllm.source", raising=False)
    return transfers


def changed(model: Any, scale: float) -> None:
    """Add noise to what is trained of a model."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(scale * torch.randn_like(parameter))
