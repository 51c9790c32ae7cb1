"""Sampling with vLLM, whose weights are updated in place before every call.

vLLM is an extra (``pip install sapo-swarm[vllm]``). It runs inside the learner's process, so an update of its
weights is a copy in memory; of a policy with adapters, they alone are sent (``adapter_push.py``). An
update can fail silently: some releases keep an old head when weights are tied. So the head is always among
the updated tensors, and after every update the log-probabilities of one greedy completion are compared with
the policy's own; an engine with other weights is an error.

Its log-probabilities are those of the tempered distribution from which it sampled. They differ from the
trainer's by rounding (1e-6 in float32, 1e-2 in bfloat16). As the old log-probabilities in the ratio they
correct for the difference.
"""

from __future__ import annotations

import os
from typing import Any, Final

import torch

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import base_model, has_adapters
from sapo_client.learner.generate import Completion, Generator, SampleRequest
from sapo_client.learner.loading.files import model_folder
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.sizing.precision import engine_type
from sapo_client.learner.vllm.adapter_push import AdapterPush, engine_options
from sapo_client.learner.vllm.weights import checkpoint_weights

PROBE_TOKENS: Final = 8
MAX_DIFFERENCE: Final = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.25}
"""In nats per token, by the engine's type or the policy's, whichever rounds more: rounding stays far below,
other weights are far above."""

GPU_SHARE: Final = 0.4
"""Share of a GPU's memory for the engine; the trainer needs the rest."""

CPU_CACHE_BYTES: Final = 256 * 2**20
"""Of the key-value cache on a CPU."""

USUAL_WINDOW: Final = 4096
"""Of a prompt with its completion, unless completions need more; the engine reserves memory for each."""


class VllmGenerator(Generator):
    """Generator with one vLLM engine for one policy.

    Args:
        policy: its weights are copied before every call.
        seed: of the engine; each call's samples have a seed of their own.
        ranks: of the learner; each makes an engine at the same time.
        new_tokens: of the longest completion.

    Raises:
        SapoError: vLLM is not installed, or the policy's base is quantised, which the engine's is not.
    """

    def __init__(self, policy: Policy, *, seed: int, ranks: RankGroup = ALONE, new_tokens: int = 0) -> None:
        _require_floats(policy)
        self._policy = policy
        self._dtype = engine_type(policy.device)
        own_type = str(policy.model.dtype).removeprefix("torch.")
        self._max_difference = max(MAX_DIFFERENCE[self._dtype], MAX_DIFFERENCE[own_type])
        self._adapters = AdapterPush(policy.model) if has_adapters(policy.model) else None
        self.window: int = engine_window(policy.window, new_tokens)
        self._engine = _engine(policy, self._dtype, seed, ranks, window=self.window)

    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Sample as ``Generator.draw`` says."""
        return [[self._completion(item) for item in output.outputs] for output in self._run(request)]

    def _run(self, request: SampleRequest) -> list[Any]:
        """Return vLLM's outputs, one for each prompt with its samples."""
        from vllm import SamplingParams

        texts = [{"prompt_token_ids": list(prompt)} for prompt in request.prompts]
        sampling = [
            SamplingParams(
                n=request.completions_per_prompt,
                temperature=request.temperature,
                max_tokens=request.max_new_tokens,
                logprobs=0,  # of the sampled token alone
                seed=(request.seed + index) % 2**63,
                stop_token_ids=list(self._policy.ends),
                detokenize=False,
            )
            for index in range(len(request.prompts))
        ]
        adapters = None if self._adapters is None else self._adapters.request
        outputs: list[Any] = self._engine.generate(texts, sampling, use_tqdm=False, lora_request=adapters)
        return outputs

    def _completion(self, item: Any) -> Completion:
        tokens = tuple(item.token_ids)
        logprobs = tuple(
            by_token[token].logprob for by_token, token in zip(item.logprobs, tokens, strict=True)
        )
        return Completion(tokens, logprobs, self._policy.decode(tokens))

    def refresh(self) -> None:
        """Copy the policy's present weights into the engine and check that it uses them.

        Raises:
            SapoError: the engine computes with other weights.
        """
        if self._adapters is None:
            weights = {"weights_iterator": checkpoint_weights(self._policy.model)}
            self._engine.collective_rpc("reload_weights", kwargs=weights)
        else:
            self._adapters.push()
        self._engine.reset_prefix_cache()
        difference = self._probe()
        if difference > self._max_difference:
            raise SapoError(
                f"vLLM did not take the new weights: log-probabilities differ by {difference:.3g}",
                hint="use learner.backend = transformers, or another release of vLLM",
                exit_code=ExitCode.BUG,
            )

    @torch.no_grad()
    def _probe(self) -> float:
        """Return the greatest difference of a log-probability between engine and policy in one completion."""
        prompt = [self._policy.end] * 2
        [output] = self._run(SampleRequest([prompt], 1, PROBE_TOKENS, temperature=0.0, seed=0))
        completion = self._completion(output.outputs[0])
        own = completion_logprobs(self._policy.model, [(prompt, completion.tokens)], self._policy.pad, 1.0)
        engine = torch.tensor(completion.logprobs, device=own.device)
        return float((own[0] - engine).abs().max())


def _require_floats(policy: Policy) -> None:
    """Raise if the policy's base is quantised: the engine would sample from another one, that of the source.

    Raises:
        SapoError: it is.
    """
    if getattr(base_model(policy.model), "is_quantized", False):
        raise SapoError(
            "vLLM samples here from the base in floating point, and the policy's base is quantised",
            hint="set learner.base = auto, or learner.backend = transformers",
            exit_code=ExitCode.CONFIG,
        )


def engine_window(window: int | None, new_tokens: int) -> int:
    """Return the tokens that an engine is opened for: of a model's window, twice the longest completion.

    Args:
        window: of the model; None if it has no limit.
        new_tokens: of the longest completion.
    """
    wanted = max(USUAL_WINDOW, 2 * new_tokens)
    return wanted if window is None else min(window, wanted)


def _engine(policy: Policy, dtype: str, seed: int, ranks: RankGroup, *, window: int) -> Any:
    """Start an engine with the policy's weights, on this rank's device.

    Raises:
        SapoError: vLLM is not installed.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process, so that weights are copied in memory
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    instead = "use learner.backend = transformers"
    extras.require(extras.VLLM, instead=instead, exit_code=ExitCode.CONFIG)
    try:
        from vllm import LLM
    except ImportError as error:
        raise SapoError(
            f"vLLM cannot be loaded: {error}",
            hint=f"{extras.VLLM.command}, or {instead}",
            exit_code=ExitCode.CONFIG,
        ) from error
    on_cpu = policy.device.type == "cpu"
    adapters = engine_options(policy.model) if has_adapters(policy.model) else {}
    memory = {"kv_cache_memory_bytes": CPU_CACHE_BYTES} if on_cpu else {"gpu_memory_utilization": GPU_SHARE}
    return LLM(
        model=str(model_folder(policy.source)),  # present weights are copied before the first call
        dtype=dtype,
        max_model_len=window,
        enforce_eager=on_cpu,
        seed=seed % 2**31,
        distributed_executor_backend=_executor(policy, ranks),
        logprobs_mode="processed_logprobs",
        generation_config="vllm",  # the model's own defaults would change the temperature
        **memory,
        **adapters,
    )


def _executor(policy: Policy, ranks: RankGroup) -> str:
    """Return vLLM's executor, and name this rank to it where there are several.

    The one for a single process takes the first GPU on every rank.
    """
    if ranks.size == 1:
        return "uni"
    on_gpu = policy.device.type == "cuda"
    os.environ["RANK"] = str(ranks.rank)
    os.environ["LOCAL_RANK"] = str(torch.cuda.current_device() if on_gpu else ranks.rank)
    return "external_launcher"
