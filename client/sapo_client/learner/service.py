"""Learner inside its process: answers named calls and keeps sampled tokens until they are trained."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from sapo_client.errors import SapoError
from sapo_client.extras import require_matching_versions
from sapo_client.learner.adapters import base_model
from sapo_client.learner.ahead import require_possible, sampled_meanwhile
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.checkpoint import FAILED, KEPT, CheckpointStore, LearnerCounters
from sapo_client.learner.encoded_text import encoded_demonstration, encoded_group
from sapo_client.learner.generate import Completion, SampleRequest
from sapo_client.learner.held_groups import HeldGroup, HeldGroups
from sapo_client.learner.imitation.demonstrations import OWN, DemonstrationBuffer
from sapo_client.learner.loading.answerable import (
    AnswerablePrompts,
    answerable_prompts,
    untrained,
    within_window,
)
from sapo_client.learner.losses.own_gradient import OwnGradient
from sapo_client.learner.policy import load_policy
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.ranks.sampling import Replica, open_generator
from sapo_client.learner.seeds import sampling_seed
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing import precision
from sapo_client.learner.sizing.fit import require_weights_fit, with_fitting_tokens
from sapo_client.learner.sizing.skeleton import require_trainable
from sapo_client.learner.trainer import Trainer
from sapo_client.learner.wire import HAPPENED, Message

_DROPPED_MOMENTS: Final = (
    "the checkpoint was written with another learner.optimizer: the weights go on from it, the optimizer's"
    " moments start at zero"
)

_NOTHING: Final = Completion((), (), "")
"""The completion for a prompt that is refused."""


class Service:
    """Policy with its trainer and checkpoints behind named calls.

    Args:
        settings: of the learner.
        ranks: processes that run the same calls; this one alone by default.

    Raises:
        SapoError: the model cannot be loaded, does not fit into memory, or the checkpoints are another
        model's.
    """

    def __init__(self, settings: LearnerSettings, ranks: RankGroup = ALONE) -> None:
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self._settings = settings
        self._ranks = ranks
        self._open(settings, ranks)
        self._store = CheckpointStore(settings.directory / "checkpoints", settings.model, ranks)
        self._good = CheckpointStore(settings.directory / "good", settings.model, ranks)
        self._held = HeldGroups()
        self._own_steps: deque[list[TrainingGroup]] = deque(maxlen=settings.own_steps_kept)
        self._samples = 0
        self._last_save = time.monotonic()
        self._save_seconds = 0.0
        self._kept_next = KEPT
        self._happened: list[tuple[str, Message]] = []
        self._resume()
        self._calls: dict[str, Callable[..., Message]] = {
            "generate": self.generate,
            "train": self.train,
            "evaluate": self.evaluate,
            "compare": self.compare,
            "promote": self.promote,
            "checkpoint": self.checkpoint,
            "keep_good": self.keep_good,
            "roll_back": self.roll_back,
            "shadow": self.shadow,
            "export": self.export,
        }

    def _open(self, settings: LearnerSettings, ranks: RankGroup) -> None:
        """Load the policy, and create its generator and trainer."""
        require_matching_versions()
        require_possible(settings, ranks)
        self._settings = settings = with_fitting_tokens(settings)
        if ranks.size == 1:  # several ranks shard the weights, and plan their memory after loading
            require_weights_fit(settings)
        require_trainable(settings.model, settings.lora_rank)
        base = precision.require_float32_without_adapters(settings.base, settings.lora_rank)
        policy = load_policy(settings.model, settings.device, base=base, on_host=ranks.size > 1)
        types = precision.type_names(base, settings.bfloat16, policy.device)
        precision.require_equal_types(ranks.exchange(types))
        self._policy = policy.with_adapters(settings.lora_rank) if settings.lora_rank else policy
        # vLLM has weights of its own
        self._replica = Replica(self._policy, ranks, copied=settings.overlap and not settings.vllm)
        self._generator = open_generator(self._replica, ranks, settings)
        self._max_tokens: int | None = ranks.broadcast(self._generator.window)
        policy.require_room(settings.max_new_tokens, self._max_tokens)
        self._trainer = Trainer(self._policy, settings, ranks)

    def call(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return the result of a call by its name, with the events of the node that it leads to."""
        result = self._calls[name](**arguments)
        happened, self._happened = self._happened, []
        return {**result, HAPPENED: happened} if happened else result

    def about(self) -> Message:
        """Return step, size, architecture and device, the reply to the start of a learner."""
        return {
            "step": self._trainer.steps,
            "parameters": sum(parameter.numel() for parameter in self._trainer.parameters),
            "architecture": type(base_model(self._replica.policy.model)).__name__,
            "device": str(self._policy.device),
            "ranks": self._ranks.size,
            "notice": "; ".join(self._notices()),
        }

    def _notices(self) -> list[str]:
        """Return the notices for the operator at the start."""
        dropped = _DROPPED_MOMENTS if self._store.has_dropped_moments else ""
        return [each for each in (dropped, self._policy.notice, self._policy.form.notice) if each]

    def generate(self, prompts: list[str], completions_per_prompt: int, handles: list[int]) -> Message:
        """Sample a group per prompt and keep its tokens under the prompt's handle.

        Args:
            prompts: texts.
            completions_per_prompt: size of each group.
            handles: numbers chosen by the node, one per prompt.

        Returns:
            ``completions``, UTF-8 texts by prompt, none for one that is refused; ``refusals``, reason and
            words by the place of such a prompt; ``tokens``, the number of sampled tokens.
        """
        posed = self._answerable(prompts)
        request = self._request(posed, completions_per_prompt)
        self._generator.refresh()
        groups = self._generator.draw(request) if posed.places else []
        return self._hold(posed, groups, handles, self._trainer.steps)

    def _answerable(self, prompts: Sequence[str]) -> AnswerablePrompts:
        return answerable_prompts(self._policy, prompts, self._settings.max_new_tokens, self._max_tokens)

    def _request(self, posed: AnswerablePrompts, completions_per_prompt: int) -> SampleRequest:
        """Return the request for groups to train, with the next seed of the sampler."""
        return SampleRequest(
            posed.tokens,
            completions_per_prompt,
            max_new_tokens=self._settings.max_new_tokens,
            temperature=self._settings.temperature,
            seed=self._sample_seed(),
        )

    def _hold(
        self, posed: AnswerablePrompts, answers: list[list[Completion]], handles: list[int], step: int
    ) -> Message:
        """Keep the tokens of the sampled groups of posed prompts; return ``generate``'s result."""
        sampled = dict(zip(posed.places, answers, strict=True))
        for (place, group), prompt in zip(sampled.items(), posed.tokens, strict=True):
            self._held.hold(handles[place], HeldGroup(prompt, tuple(group), step))
        groups = [sampled.get(place, []) for place in range(len(handles))]
        return {
            "completions": [[item.utf8 for item in group] for group in groups],
            "refusals": {place: (each.reason, each.detail) for place, each in posed.refusals.items()},
            "tokens": sum(len(item.tokens) for group in groups for item in group),
        }

    def evaluate(self, prompts: list[str], temperature: float = 0.0, seed: int = 0) -> Message:
        """Return one completion per prompt, greedy at temperature 0; the sampler's stream is untouched."""
        return {"completions": [each.utf8 for each in self._answers(prompts, temperature, seed)]}

    def compare(self, prompts: list[str], seed: int = 0) -> Message:
        """Return one completion per prompt of the policy and one of its candidate, sampled as for training.

        Returns:
            ``policy`` and ``candidate``, UTF-8 texts, the same without a candidate; ``tokens``, the number of
            sampled tokens.
        """
        temperature = self._settings.temperature
        of_policy = self._answers(prompts, temperature, seed)
        with self._trainer.supervised.weights.candidate_in_place():
            of_candidate = self._answers(prompts, temperature, seed)
        return {
            "policy": [each.utf8 for each in of_policy],
            "candidate": [each.utf8 for each in of_candidate],
            "tokens": sum(len(each.tokens) for each in (*of_policy, *of_candidate)),
        }

    def promote(self) -> Message:
        """Make the candidate the policy, and write it to the disk; return the step."""
        self._trainer.supervised.weights.promote()
        self._try_to_save()  # so that no restart asks for the same evidence again
        return {"step": self._trainer.steps}

    def _answers(self, prompts: Sequence[str], temperature: float, seed: int) -> list[Completion]:
        """Return one completion per prompt under the present weights, without tokens if it is refused."""
        posed = self._answerable(prompts)
        if not posed.places:
            return [_NOTHING] * len(prompts)
        groups = self._generator.sample(
            posed.tokens,
            completions_per_prompt=1,
            max_new_tokens=self._settings.max_new_tokens,
            temperature=temperature,
            seed=seed,
        )
        answers = dict(zip(posed.places, (group[0] for group in groups), strict=True))
        return [answers.get(place, _NOTHING) for place in range(len(prompts))]

    def train(
        self,
        groups: list[dict[str, Any]],
        demonstrations: Sequence[Message] = (),
        judged: Sequence[Message] = (),
        rehearsed: Sequence[Message] = (),
        forgotten: Sequence[tuple[bytes, int]] = (),
        ahead: Message | None = None,
    ) -> Message:
        """Train one step and return its report; with ``ahead`` also ``generated``, what ``generate`` returns.

        Args:
            groups: as ``wire.group_message`` makes them.
            demonstrations: new ones: other accounts' verified right answers, each with ``prompt`` (text),
                ``completion`` (UTF-8), ``family`` (index of the suite), ``author`` (the account's id) and
                ``answer`` (the completion without the way to it).
                Those that are not UTF-8 or longer than a completion may be are left out.
            judged: right answers like these whose steps are judged and not trained.
            rehearsed: own right answers beside the groups', each with ``prompt``, ``completion`` and
                ``family``.
            forgotten: accounts' ids, with a family each, whose demonstrations are removed.
            ahead: arguments of ``generate``, which samples meanwhile with the weights before the step.
        """
        batch = [within_window(self._policy, self._training_group(**group)) for group in groups]
        own = [group for group in batch if not group.external]
        encoded = partial(encoded_demonstration, self._policy, max_new_tokens=self._settings.max_new_tokens)
        shown = [encoded(**message) for message in demonstrations]
        not_shown = [encoded(**message) for message in judged]
        own_answers = [encoded(**message, author=OWN, answer=message["completion"]) for message in rehearsed]
        before = self._trainer.steps
        posed, sampling = None, None
        if ahead is not None:
            posed = self._answerable(ahead["prompts"])
            request = self._request(posed, ahead["completions_per_prompt"])
            sampling = request if posed.places else None
        with sampled_meanwhile(self._generator, sampling, self._settings.threads) as sampled:
            report = self._trainer.step(
                batch,
                demonstrations=[text for text in shown if text is not None],
                judged=[text for text in not_shown if text is not None],
                rehearsed=[text for text in own_answers if text is not None],
                forgotten={(author, family) for author, family in forgotten},
                reencoded=sum(group.behaviour is None for group in own),
            )
        self._own_steps.append([replace(group, states=None) for group in own])
        self._held.finish_step({group["handle"] for group in groups})
        generated: Message = {}
        if posed is not None and ahead is not None:
            generated = {"generated": self._hold(posed, sampled.result(), ahead["handles"], before)}
        self._save_if_due()
        values = iter(report.step_values)
        aligned = [None if text is None else next(values) for text in (*shown, *not_shown)]
        too_long, raised = untrained(batch)
        report = replace(report, step_values=aligned, too_long=too_long, template_raised=raised)
        return asdict(report) | generated

    def checkpoint(self) -> Message:
        """Write a checkpoint now; return its step.

        Raises:
            SapoError: it cannot be written, as on a full disk (transient).
        """
        started = time.monotonic()
        try:
            self._store.save(self._trainer, self._counters("checkpoint"), kept=self._kept_next)
        finally:  # one that fails costs as much time
            self._last_save = time.monotonic()
            self._save_seconds = self._last_save - started
        self._kept_next = KEPT
        return {"step": self._trainer.steps}

    def keep_good(self) -> Message:
        """Keep the present policy, to which ``roll_back`` returns; return its step."""
        self._save_good()
        return {"step": self._trainer.steps}

    def roll_back(self, planters: Sequence[bytes] = ()) -> Message:
        """Return to the policy that was last kept as good; the step count and the sampler's stream go on.

        Args:
            planters: accounts' ids, whose demonstrations alone are forgotten; without any, all since then.

        If there is no good checkpoint that can be read, the present policy stays and is kept as good. A kept
        candidate is dropped: what made the policy go back may have trained it, too.
        """
        held = self._trainer.demonstrations
        if not self._restore_good():
            self._replace_good()
        self._trainer.supervised.weights.drop_student()
        if planters:
            held.forget_pairs({(author, family) for author in planters for family in held.families()})
            self._trainer.demonstrations = held
        self._kept_next = 1  # so that no restart resumes the poisoned policy
        self._try_to_save()
        return {"step": self._trainer.steps}

    def shadow(self, prompts: list[str]) -> Message:
        """Train the good policy on the own groups since it was kept, and keep the result as the good policy.

        It approximates the policy without other accounts' text (the own groups were sampled by the present
        policy). Steps that this process does not hold (``own_steps_kept``, a restart) are missing. The
        present policy does not change. If no good checkpoint can be read, it is kept as good.

        Returns:
            ``completions``, a greedy one of the new good policy per prompt.

        Raises:
            SapoError: a checkpoint cannot be written, as on a full disk (transient); nothing has changed.
        """
        self.checkpoint()
        own_steps = list(self._own_steps)
        if not self._restore_good():
            self._replace_good()
            return self.evaluate(prompts)
        try:
            self._train_alone(own_steps)
            answers = self.evaluate(prompts)
            self._save_good()
        except SapoError:
            self._own_steps.extend(own_steps)  # the good policy on the disk has not been trained on them
            raise
        finally:
            self._restore(self._store)
        return answers

    def _train_alone(self, own_steps: Sequence[list[TrainingGroup]]) -> None:
        """Train the restored good policy on own groups only, without demonstrations."""
        trainer = self._trainer
        steps, of_others, mean = trainer.steps, trainer.demonstrations, trainer.own_gradient
        trainer.demonstrations = DemonstrationBuffer(of_others.capacity)
        trainer.own_gradient = OwnGradient(trainer.parameters)
        for groups in own_steps:
            trainer.step(groups)
        trainer.demonstrations, trainer.steps, trainer.own_gradient = of_others, steps, mean

    def _save_good(self) -> None:
        """Keep the trainer's state as the good one; own groups count from here."""
        self._good.save(self._trainer, self._counters("good"), kept=1)
        self._own_steps.clear()

    def _replace_good(self) -> None:
        """Keep the present policy as good, because the kept one is lost or damaged, and report it."""
        self._save_good()
        self._happened.append(("good_lost", {"step": self._trainer.steps}))

    def _restore_good(self) -> bool:
        """Restore the good policy; the step count goes on, own groups count from here.

        Returns:
            Whether there is one; without one nothing has changed.
        """
        steps = self._trainer.steps
        if not self._restore(self._good):
            return False
        self._trainer.steps = steps
        self._own_steps.clear()
        return True

    def _restore(self, store: CheckpointStore) -> bool:
        """Restore a store's newest intact checkpoint; return whether there is one."""
        counters = store.restore(self._trainer)
        if counters is not None:
            self._restored(counters)
        return counters is not None

    def export(self, folder: str) -> Message:
        """Write model and tokenizer so that transformers loads them; return the step."""
        self._replica.refresh()
        if self._ranks.is_leader:
            self._replica.policy.save(Path(folder))
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
        held = self._held.matching(handle, completions)
        if held is not None:
            age = self._trainer.steps - held.step
            return held.training_group(rewards, external=external, family=family, age=age)
        return encoded_group(
            self._policy,
            prompt,
            completions,
            rewards,
            external=external,
            family=family,
            max_new_tokens=self._settings.max_new_tokens,
        )

    def _sample_seed(self) -> int:
        """Return the next seed of the sampler, a function of the root seed and the number of calls."""
        seed = sampling_seed(f"{self._settings.seed}/sample/{self._samples}")
        self._samples += 1
        return seed

    def _resume(self) -> None:
        if self._settings.fresh:
            if self._ranks.is_leader:
                self._store.set_aside()
            return
        counters = self._store.restore(self._trainer)
        if counters is not None:
            self._restored(counters)
            self._samples = counters.samples

    def _counters(self, name: str) -> LearnerCounters:
        """Return the counters for a checkpoint; ``name`` is the kind of checkpoint."""
        return LearnerCounters(self._samples)

    def _restored(self, counters: LearnerCounters) -> None:
        """Restore what a checkpoint only refers to; here nothing, since it contains everything."""

    def _save_if_due(self) -> None:
        """Write a checkpoint if its cost allows: after every step of a small model, rarely of a large one."""
        since = time.monotonic() - self._last_save
        is_due = since * self._settings.checkpoint_share > self._save_seconds
        if self._ranks.broadcast(is_due):  # by the leader's clock, because all ranks take part
            self._try_to_save()

    def _try_to_save(self) -> None:
        """Write a checkpoint; report a transient failure and continue."""
        try:
            self.checkpoint()
        except SapoError as error:
            if not error.transient:
                raise
            self._happened.append((FAILED, {"why": error.text}))
