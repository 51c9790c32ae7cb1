"""The routes of a vLLM server that a learner uses, with a real policy behind them.

Completions are those of the OpenAI-compatible API with vLLM's additions: token ids as prompts, ``n``,
``logprobs`` of the sampled token, ``return_token_ids``, ``stop_token_ids``. Weights arrive while the server
is paused, as its development routes require; NCCL's part is played by whoever calls ``receive``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from support.local_api import ApiHandler, serving

from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import Policy

NAME = "served"
OF_GENERATION_CONFIG = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Settings that vLLM takes from a model's ``generation_config.json`` where a request leaves them out."""


class VllmApi:
    """State of the server.

    Attributes:
        calls: paths of the requests so far.
        token_ids: whether completions contain them; old releases have none.
        falsify: changes the choices of a reply, as a faulty server would.
        failing: status code of every reply; None: it works.
        window: tokens of the longest prompt with its completion; None: the server does not say.
    """

    def __init__(self, policy: Policy) -> None:
        self.calls: list[str] = []
        self.token_ids = True
        self.falsify: Callable[[list[dict[str, Any]]], object] = lambda choices: None
        self.failing: int | None = None
        self.window: int | None = None
        self._policy = policy
        self._generator = generator_for(policy)
        self._is_paused = False

    @torch.no_grad()
    def receive(self, weights: dict[str, torch.Tensor]) -> None:
        """Take weights, as the workers do between ``start_weight_update`` and ``finish_weight_update``."""
        assert self._is_paused
        self.calls.append("weights")
        self._policy.model.load_state_dict(weights)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body of a reply."""
        self.calls.append(path)
        if self.failing is not None:
            return self.failing, {"error": {"message": "not now"}}
        if path == "/v1/models":
            served = {"id": NAME, "object": "model", "max_model_len": self.window}
            return 200, {"object": "list", "data": [served]}
        if path == "/get_world_size":
            return 200, {"world_size": 1}
        if path in ("/pause", "/resume"):
            self._is_paused = path == "/pause"
            return 200, {"status": path[1:]}
        if path == "/reset_prefix_cache":
            return 200, {}
        if path == "/v1/completions":
            return self._completions(body)
        return 404, {"detail": "Not Found"}

    def _completions(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self._is_paused or body["model"] != NAME:
            return 400, {"error": {"message": "paused, or no such model"}}
        assert (body["logprobs"], body["return_token_ids"]) == (0, True)
        assert body["stop_token_ids"] == list(self._policy.ends)
        left_out = [each for each in OF_GENERATION_CONFIG if each not in body]
        assert not left_out, "vLLM takes these from the model's generation_config.json"
        if self.window is not None and len(body["prompt"]) + body["max_tokens"] > self.window:
            return 400, {"error": {"message": f"maximum context length is {self.window} tokens"}}
        [group] = self._generator.sample(
            [body["prompt"]],
            completions_per_prompt=body["n"],
            max_new_tokens=body["max_tokens"],
            temperature=body["temperature"],
            seed=body["seed"],
        )
        choices = [
            {
                "index": index,
                "text": item.text,
                "logprobs": {"token_logprobs": item.logprobs},
                "finish_reason": "stop" if item.tokens[-1] in self._policy.ends else "length",
                **({"token_ids": item.tokens} if self.token_ids else {}),
            }
            for index, item in enumerate(group)
        ]
        self.falsify(choices)
        return 200, {"object": "text_completion", "model": NAME, "choices": choices[::-1]}


@contextmanager
def vllm_api(policy: Policy) -> Iterator[tuple[str, VllmApi]]:
    """Serve a policy on the loopback interface; yield the URL and the server's state."""
    api = VllmApi(policy)

    class Handler(ApiHandler):
        def do_GET(self) -> None:
            self.reply(*api.answer(self.path, {}))

        def do_POST(self) -> None:
            self.reply(*api.answer(self.path, json.loads(self.body() or b"{}")))

    with serving(Handler) as url:
        yield url, api
