"""genrl's game at the work of `sapo bench train`; runs in its own environment, without sapo or a swarm."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from genrl.communication.local.null_comm import NullCommunicationBackend
from genrl.data.text_data_managers import SimpleTextDataManager
from genrl.game import BaseGameManager
from genrl.rewards import DefaultRewardManager
from genrl.rewards.reward_store import RewardFnStore, RoundRewardFnStore
from genrl.state import GameState
from genrl.trainer.grpo_trainer import GRPOLanguageTrainerModule, GRPOTrainerConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""genrl always applies a chat template; this one does not change a prompt."""


class MeasuredTrainer(GRPOLanguageTrainerModule):  # type: ignore[misc]
    """Trainer that records processor seconds of sampling and sampled tokens, end tokens included."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds: list[float] = []
        self.tokens: list[int] = []

    def generate(self, inputs: Any, return_completion_ids: bool = False, stage: int = 0) -> Any:
        """Sample as the parent class does, and record the cost."""
        started = time.process_time()
        texts, ids = super().generate(inputs, return_completion_ids=True, stage=stage)
        self.seconds.append(time.process_time() - started)
        end = self.processing_class.eos_token_id
        self.tokens.append(sum(_until_end(row, end) for group in ids for row in group))
        return (texts, ids) if return_completion_ids else texts


class TimedGame(BaseGameManager):  # type: ignore[misc]
    """Game that records processor seconds of each round, which is one stage and one optimizer step."""

    seconds: list[float]

    def run_game_round(self) -> None:
        """Sample, score, train and fetch the next round's prompts; record the time."""
        started = time.process_time()
        super().run_game_round()
        self.seconds.append(time.process_time() - started)


def _until_end(row: torch.Tensor, end: int) -> int:
    """Return the number of tokens up to the first end token, which is included."""
    ends = (row == end).nonzero()
    return int(ends[0]) + 1 if len(ends) else len(row)


def rewards(state: GameState, informative: int) -> dict[Any, dict[Any, list[list[float]]]]:
    """Return the number of digits divided by 100, 0 after the first ``informative`` items, by agent, item and
    node."""
    return {
        agent: {
            item: [[_digits(text) * (index < informative) for text in node] for node in nodes]
            for index, (item, nodes) in enumerate(items.items())
        }
        for agent, items in state.get_stage_actions(0).items()
    }


def _digits(text: str) -> float:
    return sum(map(str.isdigit, text)) / 100


def _game(work: dict[str, Any]) -> TimedGame:
    prompts = iter(work["prompts"])

    def draw(**_: Any) -> Dataset:
        """Return the next round's prompts; called once more than there are rounds."""
        chosen = [next(prompts, "") for _ in range(work["groups"])]
        return Dataset.from_dict({"question": chosen, "answer": [""] * len(chosen)})

    def scored(state: GameState) -> Any:
        return rewards(state, work["informative"])

    tokenizer = AutoTokenizer.from_pretrained(work["model"], padding_side="left", trust_remote_code=False)
    tokenizer.chat_template = PLAIN_TEMPLATE
    config = GRPOTrainerConfig(
        dtype="bfloat16" if work["bfloat16"] else "float32",
        enable_gradient_checkpointing=False,
        max_new_tokens=work["new_tokens"],
        num_generations=work["completions"],
        learning_rate=work["learning_rate"],
        top_k=0,
        minibatch_size=work["groups"] * work["completions"],
    )
    trainer = MeasuredTrainer(
        [AutoModelForCausalLM.from_pretrained(work["model"], dtype=torch.float32, trust_remote_code=False)],
        config,
        processing_class=tokenizer,
        log_dir=work["folder"] + "/genrl",
        log_with="none",
    )
    game = TimedGame(
        max_stage=1,
        max_round=work["steps"],
        game_state=GameState(round=0, stage=0),
        reward_manager=DefaultRewardManager(RewardFnStore(work["steps"], [RoundRewardFnStore(1, [scored])])),
        trainer=trainer,
        data_manager=SimpleTextDataManager(None, num_train_samples=work["groups"], data_generator=draw),
        communication=NullCommunicationBackend(),
    )
    game.seconds = []
    return game


def main() -> None:
    """Play all rounds; print the cost of each."""
    work = json.load(sys.stdin)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    game = _game(work)
    game.run_game()
    # genrl only logs errors of sampling and training and continues, so completed steps are counted
    if game.trainer.global_step != work["steps"]:
        sys.exit(f"genrl trained {game.trainer.global_step} of {work['steps']} rounds")
    found = {
        "seconds": game.seconds,
        "sampling_seconds": game.trainer.seconds,
        "tokens": game.trainer.tokens,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
