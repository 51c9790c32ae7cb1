"""Whether the way pays: a policy is shown solutions of families that it does not know, with steps or without.

Plain supervised fine-tuning on the same items, by two authors: one writes the worked solution (``ways.py``),
one the bare answer in its tags. After some numbers of examples, pass@1 on items of the families' range and on
items of larger ranges (``wide.py``), with the processor seconds of the training so far.
`python -m sapo_client.lab.demonstrate --help`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import torch

from sapo_client.lab.corpus import Author, Document, documents
from sapo_client.lab.held_out import HeldOut, pass_at_1
from sapo_client.lab.pretrain import KIND_B, Line, update
from sapo_client.lab.ways import bare, way
from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import Policy, load_policy
from sapo_verification.suites.catalogue import family

AUTHORS: Final[Mapping[str, Author]] = {"way": way, "bare": bare}


@dataclass(frozen=True, slots=True)
class DemonstrationPlan:
    """Settings that both authors share.

    Attributes:
        start: initial policy, as in `sapo join --model`.
        families: families that are shown, at the level ``worked``.
        distinct: different items per family; more examples repeat them.
        examples: numbers of examples, of all families together, after which the policy is evaluated.
        held_out_per_family: items per family and range.
        max_new_tokens: longest completion in the evaluation.
    """

    start: str = "specialist-a"
    families: tuple[str, ...] = KIND_B
    distinct: int = 1500
    examples: tuple[int, ...] = (2000, 5000, 10000, 20000, 40000)
    batch: int = 64
    learning_rate: float = 1e-3
    held_out_per_family: int = 96
    max_new_tokens: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A policy after a number of examples.

    Attributes:
        author: ``way`` or ``bare``.
        seconds: processor seconds of the training, without evaluations.
        in_range: pass@1 at temperature 1 by family, on items of the families' range.
        beyond: the same on items of larger ranges, for the families that have one.
    """

    author: str
    examples: int
    seconds: float
    in_range: dict[str, float]
    beyond: dict[str, float]


def demonstrate(plan: DemonstrationPlan, author: str) -> Iterator[Shown]:
    """Train a fresh copy of the start on one author's solutions, and yield it at each number of examples."""
    torch.manual_seed(plan.seed)
    families = [family(name, "worked") for name in plan.families]
    inside = HeldOut.of(families, plan.held_out_per_family)
    beyond = HeldOut.beyond(families, plan.held_out_per_family)
    policy = load_policy(plan.start, "cpu")
    corpus = documents(families, plan.distinct, plan.seed, AUTHORS[author])
    lines = {name: [_line(policy, document) for document in found] for name, found in corpus.items()}
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=plan.learning_rate, weight_decay=0.0)
    draw = random.Random(f"{plan.seed}/demonstrations")
    done, seconds = 0, 0.0
    for wanted in plan.examples:
        started = time.process_time()
        while done < wanted:
            names = draw.choices(plan.families, k=plan.batch)
            batch = sorted((draw.choice(lines[name]) for name in names), key=lambda line: sum(map(len, line)))
            update(policy.model, optimizer, batch, policy.pad)
            done += plan.batch
        seconds += time.process_time() - started
        yield Shown(
            author=author,
            examples=done,
            seconds=seconds,
            in_range=_pass_at_1(policy, inside, plan),
            beyond=_pass_at_1(policy, beyond, plan),
        )


def _line(policy: Policy, document: Document) -> Line:
    prompt = list(policy.encode_prompt(document.prompt))
    return prompt, list(policy.encode_completion(document.answer, sys.maxsize))


def _pass_at_1(policy: Policy, held_out: HeldOut, plan: DemonstrationPlan) -> dict[str, float]:
    groups = generator_for(policy).sample(
        [policy.encode_prompt(prompt) for prompt in held_out.prompts],
        completions_per_prompt=1,
        max_new_tokens=plan.max_new_tokens,
        temperature=1.0,
        seed=plan.seed,
    )
    return pass_at_1(held_out.scored([group[0].text.encode("utf-8", "replace") for group in groups]))


def main(arguments: list[str] | None = None) -> None:
    """Show both authors' solutions; one JSON line per evaluation on standard output."""
    defaults = DemonstrationPlan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--authors", default=",".join(AUTHORS))
    for name, value in asdict(defaults).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else value
        parser.add_argument("--" + name.replace("_", "-"), type=type(text), default=text)
    chosen = vars(parser.parse_args(arguments))
    authors = chosen.pop("authors").split(",")
    families, examples = chosen["families"].split(","), map(int, chosen["examples"].split(","))
    plan = DemonstrationPlan(**{**chosen, "families": tuple(families), "examples": tuple(examples)})
    torch.set_num_threads(1)
    for author in authors:
        for shown in demonstrate(plan, author):
            sys.stdout.write(json.dumps(asdict(shown)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
