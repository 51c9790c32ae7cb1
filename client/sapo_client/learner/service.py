"""Learner inside its process: answers named calls and keeps sampled tokens until they are trained."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import base_model
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.checkpoint import CheckpointStore, LearnerCounters
from sapo_client.learner.demonstrations import DemonstrationText
from sapo_client.learner.generate import Completion, Generator, generator_for
from sapo_client.learner.policy import load_policy
from sapo_client.learner.seeds import sampling_seed
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer
from sapo_client.learner.wire import Message

MAX_HELD_GROUPS: Final = 256
"""Sampled groups kept for training; a round has about four, so the node no longer refers to the oldest."""


@dataclass(frozen=True, slots=True)
class _HeldGroup:
    """Token ids of a group that was sampled and not trained yet."""

    prompt: tuple[int, ...]
    completions: tuple[Completion, ...]


class Service:
    """Policy with its trainer and checkpoints behind named calls.

    Args:
        settings: of the learner.

    Raises:
        SapoError: the model cannot be loaded, does not fit into memory, or the checkpoints are another
        model's.
    """

    def __init__(self, settings: LearnerSettings) -> None:
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self._settings = settings
        policy = load_policy(settings.model, settings.device)
        self._policy = policy.with_adapters(settings.lora_rank) if settings.lora_rank else policy
        self._generator = self._open_generator()
        self._trainer = Trainer(self._policy, settings)
        self._store = CheckpointStore(settings.directory / "checkpoints", settings.model)
        self._good = CheckpointStore(settings.directory / "good", settings.model)
        self._held: OrderedDict[int, _HeldGroup] = OrderedDict()
        self._samples = 0
        self._last_save = time.monotonic()
        self._save_seconds = 0.0
        self._resume()
        self._calls: dict[str, Callable[..., Message]] = {
            "generate": self.generate,
            "train": self.train,
            "evaluate": self.evaluate,
            "checkpoint": self.checkpoint,
            "keep_good": self.keep_good,
            "roll_back": self.roll_back,
            "export": self.export,
        }

    def call(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return the result of a call by its name."""
        return self._calls[name](**arguments)

    def about(self) -> Message:
        """Return step, size, architecture and device, the reply to the start of a learner."""
        return {
            "step": self._trainer.steps,
            "parameters": sum(parameter.numel() for parameter in self._trainer.parameters),
            "architecture": type(base_model(self._policy.model)).__name__,
            "device": str(self._policy.device),
        }

    def generate(self, prompts: list[str], completions_per_prompt: int, handles: list[int]) -> Message:
        """Sample a group per prompt and keep its tokens under the prompt's handle.

        Args:
            prompts: texts.
            completions_per_prompt: size of each group.
            handles: numbers chosen by the node, one per prompt.

        Returns:
            ``completions``, UTF-8 texts by prompt, and ``tokens``, the number of sampled tokens.
        """
        encoded = [self._encode_prompt(prompt) for prompt in prompts]
        groups = self._generator.sample(
            encoded,
            completions_per_prompt=completions_per_prompt,
            max_new_tokens=self._settings.max_new_tokens,
            temperature=self._settings.temperature,
            seed=self._sample_seed(),
        )
        for handle, prompt, group in zip(handles, encoded, groups, strict=True):
            self._held[handle] = _HeldGroup(prompt, tuple(group))
        while len(self._held) > MAX_HELD_GROUPS:
            self._held.popitem(last=False)
        return {
            "completions": [[_text_bytes(item) for item in group] for group in groups],
            "tokens": sum(len(item.tokens) for group in groups for item in group),
        }

    def evaluate(self, prompts: list[str], temperature: float = 0.0, seed: int = 0) -> Message:
        """Return one completion per prompt, greedy at temperature 0; the sampler's stream is untouched."""
        groups = self._generator.sample(
            [self._encode_prompt(prompt) for prompt in prompts],
            completions_per_prompt=1,
            max_new_tokens=self._settings.max_new_tokens,
            temperature=temperature,
            seed=seed,
        )
        return {"completions": [_text_bytes(group[0]) for group in groups]}

    def train(self, groups: list[dict[str, Any]], demonstrations: Sequence[Message] = ()) -> Message:
        """Train one step and return its report.

        Args:
            groups: as ``process.group_message`` makes them.
            demonstrations: new ones: other accounts' verified right answers, each with ``prompt`` (text),
                ``completion`` (UTF-8), ``family`` (index of the suite), ``author`` (the account's id) and
                ``answer`` (the completion without the way to it).
                Those that are not UTF-8 or longer than a completion may be are left out.
        """
        batch = [self._training_group(**group) for group in groups]
        own = [group for group in batch if not group.external]
        parsed = [self._demonstration(**message) for message in demonstrations]
        report = self._trainer.step(
            batch,
            demonstrations=[text for text in parsed if text is not None],
            reencoded=sum(group.behaviour is None for group in own),
        )
        for group in groups:
            self._held.pop(group["handle"], None)
        self._save_if_due()
        return asdict(report)

    def checkpoint(self) -> Message:
        """Write a checkpoint now; return its step."""
        started = time.monotonic()
        self._store.save(self._trainer, LearnerCounters(self._samples))
        self._last_save = time.monotonic()
        self._save_seconds = self._last_save - started
        return {"step": self._trainer.steps}

    def keep_good(self) -> Message:
        """Keep the present policy, to which ``roll_back`` returns; return its step."""
        self._good.save(self._trainer, LearnerCounters(self._samples), kept=1)
        return {"step": self._trainer.steps}

    def roll_back(self) -> Message:
        """Return to the policy that was last kept as good; the step count and the sampler's stream go on.

        Raises:
            SapoError: there is no good checkpoint.
        """
        steps = self._trainer.steps
        if self._good.restore(self._trainer) is None:
            raise SapoError(
                "there is no good checkpoint to go back to",
                hint="it was removed, or its disk is failing; start over with --fresh",
                exit_code=ExitCode.DATA,
            )
        self._trainer.steps = steps
        # only this checkpoint is kept, so that no restart resumes the poisoned policy
        self._store.save(self._trainer, LearnerCounters(self._samples), kept=1)
        return {"step": steps}

    def export(self, folder: str) -> Message:
        """Write model and tokenizer so that transformers loads them; return the step."""
        from pathlib import Path

        self._policy.save(Path(folder))
        return {"step": self._trainer.steps}

    def _training_group(
        self,
        prompt: str,
        completions: list[bytes],
        rewards: list[float],
        external: bool,
        handle: int | None,
        family: int | None = None,
    ) -> TrainingGroup:
        """Return a group with the sampled tokens if they are held, else with its text tokenized again."""
        held = None if handle is None else self._held.get(handle)
        if held is not None and [_text_bytes(item) for item in held.completions] == completions:
            return TrainingGroup(
                prompt=held.prompt,
                completions=tuple(item.tokens for item in held.completions),
                rewards=tuple(rewards),
                external=external,
                behaviour=tuple(item.logprobs for item in held.completions),
                family=family,
            )
        texts = [completion.decode("utf-8", errors="replace") for completion in completions]
        limit = self._settings.max_new_tokens
        return TrainingGroup(
            prompt=self._encode_prompt(prompt),
            completions=tuple(self._policy.encode_completion(text, limit) for text in texts),
            rewards=tuple(rewards),
            external=external,
            behaviour=None,
            family=family,
        )

    def _demonstration(
        self, prompt: str, completion: bytes, family: int, author: bytes, answer: bytes
    ) -> DemonstrationText | None:
        """Return a demonstration as tokens; None if it is not UTF-8, or too long to be sampled here whole."""
        try:
            text = completion.decode("utf-8")
        except UnicodeDecodeError:
            return None
        limit = self._settings.max_new_tokens
        tokens = self._policy.encode_completion(text, limit + 1)
        if len(tokens) > limit:
            return None
        return DemonstrationText(self._encode_prompt(prompt), tokens, family, author, answer)

    def _open_generator(self) -> Generator:
        if not self._settings.vllm:
            return generator_for(self._policy)
        from sapo_client.learner.vllm_generator import VllmGenerator

        return VllmGenerator(self._policy, seed=self._settings.seed)

    def _encode_prompt(self, prompt: str) -> tuple[int, ...]:
        tokens = self._policy.encode_prompt(prompt)
        self._policy.check_window(tokens, self._settings.max_new_tokens)
        return tokens

    def _sample_seed(self) -> int:
        """Return the next seed of the sampler, a function of the root seed and the number of calls."""
        seed = sampling_seed(f"{self._settings.seed}/sample/{self._samples}")
        self._samples += 1
        return seed

    def _resume(self) -> None:
        if self._settings.fresh:
            self._store.set_aside()
            return
        counters = self._store.restore(self._trainer)
        if counters is not None:
            self._samples = counters.samples

    def _save_if_due(self) -> None:
        """Write a checkpoint if its cost allows: after every step of a small model, rarely of a large one."""
        since = time.monotonic() - self._last_save
        if since * self._settings.checkpoint_share > self._save_seconds:
            self.checkpoint()


def _text_bytes(completion: Completion) -> bytes:
    return completion.text.encode("utf-8", errors="replace")
