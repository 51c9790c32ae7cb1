"""Calls of the Tinker API: a LoRA model that is trained and sampled on a server.

The API is Thinking Machines'; others serve it, too, also on own GPUs. ``tinker`` is an extra
(``pip install sapo-swarm[tinker]``). Its log-probabilities are those of temperature 1, and its AdamW gets the
constants of PyTorch's, so that a step there is the step that would be made here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.cpu.packing import Row
from sapo_client.learner.generate import Completion, SampleRequest
from sapo_client.learner.losses.accumulate import MAX_GRADIENT_NORM
from sapo_client.learner.remote.replies import Asked, away, is_passing, unusable
from sapo_client.learner.settings import LearnerSettings

LORA_RANK: Final = 32
"""Of the adapters if the settings name none: the API trains no whole models."""

_ADAM: Final = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
"""PyTorch's; the API's own differ."""

_OTHER_SERVER: Final = "use another server of the Tinker API, or a newer release of it"

RowsLoss = Callable[[list[Tensor]], Tensor]
"""Returns a loss of the rows' completion log-probabilities, to be differentiated."""


class TinkerServer:
    """One trained model on a Tinker server.

    Args:
        settings: of the learner.

    Attributes:
        tokenizer_name: of the model's tokenizer, as transformers loads it.

    Raises:
        SapoError: the package is missing, or the server refuses, or does not answer (transient).

    Every method raises ``SapoError``: a transient one if the server does not answer or fails, another one if
    it refuses or replies something that cannot be used. After an error the server may have executed a part of
    the call: open the model again.
    """

    def __init__(self, settings: LearnerSettings) -> None:
        extras.require(extras.TINKER, exit_code=ExitCode.CONFIG)
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        import tinker

        self._api = tinker
        self._sampler: Any = None
        self._where = settings.endpoint or "Thinking Machines' server"
        with self._answering(f"does not open a model {settings.model!r} for training"):
            self._service = tinker.ServiceClient(base_url=settings.endpoint, api_key=settings.endpoint_key)
            self._trained = self._service.create_lora_training_client(
                base_model=settings.model,
                rank=settings.lora_rank or LORA_RANK,
                seed=settings.seed % 2**31,
            ).result()
            known = self._trained.get_info().model_data.tokenizer_id
        self.tokenizer_name = known or settings.model

    def forward(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the log-probabilities of the rows' completion tokens, without gradients."""
        data = [self._datum(*row) for row in rows]
        with self._answering("computes no log-probabilities"):
            outputs = self._trained.forward(data, "cross_entropy").result().loss_fn_outputs
        return self._ends([torch.tensor(output["logprobs"].data) for output in outputs], rows)

    def forward_backward(self, rows: Sequence[Row], loss: RowsLoss) -> None:
        """Add the gradient of a loss to the server's; the loss is computed here.

        Args:
            rows: prompt and completion, as token ids.
            loss: of the completions' log-probabilities, in the rows' order; if it raises, the model on the
                server accepts no more training.
        """

        def of_all(_: Any, logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
            return loss(self._ends(logprobs, rows)), {}

        data = [self._datum(*row) for row in rows]
        with self._answering("trains no step"):
            self._trained.forward_backward_custom(data, of_all).result()

    def optim_step(self, rate: float) -> None:
        """Update the weights by the added gradients with AdamW; they are clipped, and zero afterwards."""
        parameters = self._api.AdamParams(
            learning_rate=rate, weight_decay=0.0, grad_clip_norm=MAX_GRADIENT_NORM, **_ADAM
        )
        with self._answering("updates no weights"):
            self._trained.optim_step(parameters).result()
        self._sampler = None

    def sampler(self) -> Any:
        """Return the API's client that samples with the present weights."""
        if self._sampler is None:
            with self._answering("opens no weights for sampling"):
                self._sampler = self._trained.save_weights_and_get_sampling_client().result()
        return self._sampler

    def sample(
        self, sampler: Any, request: SampleRequest, *, end: int, vocabulary: int
    ) -> list[list[Completion]]:
        """Return completions of each prompt, without their texts.

        Args:
            sampler: as ``sampler`` returned it.
            request: prompts and what is sampled.
            end: token that ends a completion.
            vocabulary: number of the model's token ids.
        """
        asked = Asked(self._where, request.max_new_tokens, vocabulary, hint=_OTHER_SERVER)
        with self._answering("samples nothing"):
            found = self._sampled(sampler, request, end)
        for sequences in found:
            asked.require_count(len(sequences), request.completions_per_prompt)
        return [[self._completion(each, asked) for each in sequences] for sequences in found]

    def _sampled(self, sampler: Any, request: SampleRequest, end: int) -> list[list[Any]]:
        """Return the API's sequences of each prompt."""
        types = self._api.types
        futures = [
            sampler.sample(
                prompt=types.ModelInput.from_ints(list(prompt)),
                num_samples=request.completions_per_prompt,
                sampling_params=types.SamplingParams(
                    max_tokens=request.max_new_tokens,
                    temperature=request.temperature,
                    seed=(request.seed + index) % 2**31,
                    stop=[end],
                ),
            )
            for index, prompt in enumerate(request.prompts)
        ]
        return [list(future.result().sequences) for future in futures]

    def save(self, name: str) -> str:
        """Save weights and optimizer on the server; return their address there."""
        with self._answering(f"does not save {name}"):
            path: str = self._trained.save_state(name, overwrite=True).result().path
        return path

    def load(self, path: str) -> None:
        """Continue with the weights and the optimizer of an address that ``save`` returned.

        Raises:
            SapoError: the server does not have them any more.
        """
        try:
            self._trained = self._service.create_training_client_from_state_with_optimizer(path).result()
        except self._api.TinkerError as error:
            if self._is_passing(error):
                raise away(self._where, error) from error
            raise SapoError(
                f"the server cannot load the checkpoint {path}: {error}",
                hint="it may have expired there; start over with --fresh",
                exit_code=ExitCode.DATA,
            ) from error
        self._sampler = None

    def _datum(self, prompt: Sequence[int], completion: Sequence[int]) -> Any:
        """Return a row in the API's form: each position with the token that it predicts."""
        tokens = [*prompt, *completion]
        return self._api.Datum(
            model_input=self._api.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={"target_tokens": torch.tensor(tokens[1:])},
        )

    def _ends(self, logprobs: Sequence[Tensor], rows: Sequence[Row]) -> list[Tensor]:
        """Return the completions' part of each row's log-probabilities.

        Raises:
            SapoError: they are not as many as the row's predicted tokens, or not finite.
        """
        found = [len(values) for values in logprobs]
        wanted = [len(prompt) + len(completion) - 1 for prompt, completion in rows]
        if found != wanted:
            why = f"log-probabilities of rows of {found} tokens; {wanted} were requested"
            raise unusable(self._where, why, hint=_OTHER_SERVER)
        if not all(bool(torch.isfinite(values.detach()).all()) for values in logprobs):
            raise unusable(self._where, "log-probabilities that are not finite", hint=_OTHER_SERVER)
        return [values[-len(completion) :] for values, (_, completion) in zip(logprobs, rows, strict=True)]

    def _completion(self, sequence: Any, asked: Asked) -> Completion:
        if sequence.logprobs is None:
            raise unusable(self._where, "no log-probabilities of what it samples", hint=_OTHER_SERVER)
        tokens, logprobs = asked.checked(list(sequence.tokens), list(sequence.logprobs))
        return Completion(tokens, logprobs, "")

    @contextmanager
    def _answering(self, failing: str) -> Iterator[None]:
        """Translate errors of the API into ``SapoError``.

        Args:
            failing: what the server fails to do, as a phrase for the message.
        """
        try:
            yield
        except self._api.TinkerError as error:
            if self._is_passing(error):
                raise away(self._where, error) from error
            raise SapoError(
                f"{self._where} {failing}: {error}",
                hint="check learner.endpoint, learner.endpoint_key_file, and that the server has this model",
                exit_code=ExitCode.NETWORK,
            ) from error

    def _is_passing(self, error: Exception) -> bool:
        """Whether an error of the API may be temporary."""
        if isinstance(error, self._api.APIStatusError):
            return is_passing(error.status_code)
        if isinstance(error, self._api.RequestFailedError):
            return bool(error.category.value == "server")
        return isinstance(error, self._api.APIConnectionError)
