"""Sampling on a vLLM server of another machine, whose weights are updated over NCCL before every call.

The server is started with ``vllm serve MODEL --weight-transfer-config '{"backend": "nccl"}'
--logprobs-mode processed_logprobs`` and ``VLLM_SERVER_DEV_MODE=1``, which opens the routes for weights; so it
belongs on a private network. The requests are those of its OpenAI-compatible API with token ids in and out.
Weights travel by vLLM's own trainer engine (0.28 and later), which needs a GPU on both sides. After every
update the log-probabilities of one greedy completion are compared with the policy's own: a server with other
weights is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import httpx
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import merge_adapters
from sapo_client.learner.generate import Completion, Generator, SampleRequest
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy
from sapo_client.learner.remote.replies import Asked, away, is_passing, transient, unusable

PROBE_TOKENS: Final = 8
MAX_DIFFERENCE: Final = 0.25
"""In nats per token: rounding of bfloat16 stays far below it, other weights are far above."""

TIMEOUT_SECONDS: Final = 3600.0
"""Of a request; the node ends a call that takes too long."""

SERVE: Final = (
    "start it with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs"
    ' --weight-transfer-config \'{"backend": "nccl"}\''
)


_RELEASE: Final = "it must be vLLM 0.28 or later, with the model of learner.model: " + SERVE


class _Reply(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


R = TypeVar("R", bound=_Reply)


class _Model(_Reply):
    id: str
    max_model_len: int | None = None


NEUTRAL: Final = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Settings that a server takes from the model's ``generation_config.json`` where a request leaves them out.

Samples would then not follow the policy that is trained: chat models name limits and penalties there.
"""


class _Models(_Reply):
    data: tuple[_Model, ...] = Field(min_length=1)


class _WorldSize(_Reply):
    world_size: int = Field(ge=1)


class _Logprobs(_Reply):
    token_logprobs: tuple[float, ...]


class _Choice(_Reply):
    index: int
    token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None


class _Completions(_Reply):
    choices: tuple[_Choice, ...]


class WeightPush(Protocol):
    """Sends a policy's present weights to a server."""

    def __call__(self) -> None:
        """Return once the server has them."""
        ...


class VllmServerGenerator(Generator):
    """Generator that samples on a vLLM server.

    Args:
        policy: its weights are sent before every call.
        url: of the server, without a path.
        push: sends the weights; None: over NCCL.

    Raises:
        SapoError: the server does not answer (transient), or vLLM is not installed here.
    """

    def __init__(self, policy: Policy, url: str, push: WeightPush | None = None) -> None:
        self._policy = policy
        self._client = httpx.Client(base_url=url.rstrip("/").removesuffix("/v1"), timeout=TIMEOUT_SECONDS)
        self._url = url
        self._given_push = push
        self._was_away = False
        self.window: int | None = None
        self._model, self._push = self._connected()

    def _connected(self) -> tuple[str, WeightPush]:
        """Return the name of the server's model, and what sends weights to it."""
        served = self._ask(_Models, "GET", "/v1/models").data[0]
        model, self.window = served.id, served.max_model_len
        if self._given_push is not None:
            return model, self._given_push
        workers = self._ask(_WorldSize, "GET", "/get_world_size").world_size
        self._release_earlier()
        return model, nccl_push(self._policy, str(self._client.base_url), workers)

    def _release_earlier(self) -> None:
        """Have the server close the connection of an earlier learner, which holds memory of its GPU.

        Releases before 0.30 do not know the request. If it fails, the weights do not arrive, which is told.
        """
        try:
            self._client.post("/shutdown_weight_transfer_engine")
        except httpx.HTTPError as error:
            raise away(self._url, error or type(error).__name__) from error

    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Sample as ``Generator.draw`` says.

        Raises:
            SapoError: the server does not answer (transient), refuses, or sends what cannot be trained on.
        """
        return [self._completions(request, index) for index in range(len(request.prompts))]

    def _completions(self, request: SampleRequest, index: int) -> list[Completion]:
        """Return completions of one prompt, by its index."""
        reply = self._ask(
            _Completions,
            "POST",
            "/v1/completions",
            {
                "model": self._model,
                "prompt": list(request.prompts[index]),
                "n": request.completions_per_prompt,
                "max_tokens": request.max_new_tokens,
                "temperature": request.temperature,
                "seed": (request.seed + index) % 2**63,
                "logprobs": 0,  # of the sampled token alone
                "return_token_ids": True,
                "stop_token_ids": list(self._policy.ends),
                **NEUTRAL,
            },
        )
        vocabulary = int(self._policy.model.config.get_text_config().vocab_size)
        asked = Asked(self._url, request.max_new_tokens, vocabulary, hint=_RELEASE)
        asked.require_count(len({choice.index for choice in reply.choices}), request.completions_per_prompt)
        asked.require_count(len(reply.choices), request.completions_per_prompt)
        choices = sorted(reply.choices, key=lambda each: each.index)
        return [self._completion(choice, asked) for choice in choices]

    def _completion(self, choice: _Choice, asked: Asked) -> Completion:
        if choice.token_ids is None or choice.logprobs is None:
            raise unusable(self._url, "no token ids, or no log-probability for each of them", hint=_RELEASE)
        tokens, logprobs = asked.checked(choice.token_ids, choice.logprobs.token_logprobs)
        return Completion(tokens, logprobs, self._policy.decode(tokens))

    def refresh(self) -> None:
        """Send the present weights and check that the server uses them; connect again if it was away.

        Raises:
            SapoError: it does not answer or take weights (transient), or computes with other weights.
        """
        if self._was_away:
            self._model, self._push = self._connected()
            self._was_away = False
        self._request("POST", "/pause")
        try:
            self._push()
        except SapoError:
            self._was_away = True
            raise
        self._request("POST", "/reset_prefix_cache")
        self._request("POST", "/resume")
        difference = self._probe()
        if difference > MAX_DIFFERENCE:
            raise SapoError(
                f"{self._url} did not take the new weights: log-probabilities differ by {difference:.3g}",
                hint="use another release of vLLM there and here, or sample without learner.endpoint",
                exit_code=ExitCode.BUG,
            )

    @torch.no_grad()
    def _probe(self) -> float:
        """Return the greatest difference of a log-probability between server and policy in one completion."""
        prompt = [self._policy.end] * 2
        [[completion]] = self.draw(SampleRequest([prompt], 1, PROBE_TOKENS, temperature=0.0, seed=0))
        own = completion_logprobs(self._policy.model, [(prompt, completion.tokens)], self._policy.pad, 1.0)
        theirs = torch.tensor(completion.logprobs, device=own.device)
        return float((own[0] - theirs).abs().max())

    def _ask(self, kind: type[R], method: str, path: str, body: dict[str, Any] | None = None) -> R:
        """Return the reply to a request, parsed.

        Raises:
            SapoError: as ``_request`` says, or the reply is of another kind.
        """
        content = self._request(method, path, body)
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise unusable(self._url, f"{path}: {place}: {first['msg']}", hint=_RELEASE) from error

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """Return the content of the reply to a request.

        Raises:
            SapoError: the server does not answer or fails (transient), or refuses.
        """
        try:
            reply = self._client.request(method, path, json=body)
            reply.raise_for_status()
        except httpx.HTTPStatusError as error:
            refusal = error.response
            if is_passing(refusal.status_code):
                self._was_away = True
                raise away(self._url, f"{path} fails with {refusal.status_code}") from error
            raise SapoError(
                f"{self._url} refuses {path}: {refusal.status_code} {refusal.text[:200]}",
                hint=SERVE,
                exit_code=ExitCode.NETWORK,
            ) from error
        except httpx.HTTPError as error:
            self._was_away = True
            raise away(self._url, error or type(error).__name__) from error
        return reply.content


def nccl_push(policy: Policy, url: str, workers: int) -> WeightPush:
    """Return what sends the policy's weights, adapters merged, to a server over NCCL.

    Args:
        policy: on a GPU.
        url: of the server.
        workers: its processes.

    Raises:
        SapoError: vLLM is not installed here, the policy is on a CPU, or the server refuses (transient).
    """
    if policy.device.type != "cuda":
        raise SapoError(
            "weights reach a vLLM server over NCCL, which needs a GPU here",
            hint="use learner.backend = transformers, which samples here",
            exit_code=ExitCode.CONFIG,
        )
    extras.require(extras.VLLM, exit_code=ExitCode.CONFIG)
    from vllm.distributed.weight_transfer import (
        HTTPVLLMWeightSyncClient,
        WeightTransferTrainerFactory,
    )
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
    from vllm.utils.network_utils import get_ip, get_open_port

    from sapo_client.learner.vllm.source import CheckpointSource

    def engine_of(model: Any) -> Any:
        place = NCCLTrainerInitInfo(
            master_address=get_ip(),
            master_port=get_open_port(),
            world_size=workers + 1,
            rank=0,
            packed=True,
        )
        return WeightTransferTrainerFactory.trainer_init(
            init_info=place, client=HTTPVLLMWeightSyncClient(url), source=CheckpointSource(model)
        )

    merged = merge_adapters(policy.model)
    with _transfer(url):
        engine = engine_of(merged)

    def push() -> None:
        if merged is not policy.model:
            merged.load_state_dict(merge_adapters(policy.model).state_dict())
        with _transfer(url):
            engine.send_weights()

    return push


@contextmanager
def _transfer(url: str) -> Iterator[None]:
    """Report a transfer that fails, on the server or in NCCL.

    Raises:
        SapoError: it fails (transient).
    """
    from requests import RequestException

    try:
        yield
    except (RequestException, RuntimeError) as error:
        hint = (
            "restart the server if this lasts, for an update that was cut off keeps it from the next one;"
            " and use one release of vLLM there and here"
        )
        raise transient(f"{url} does not take the weights: {error}", hint=hint) from error
