"""Pretraining of the bundled policy, with few steps."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.policies import make_policy_folder
from transformers import AutoTokenizer

from sapo_client.errors import SapoError
from sapo_client.lab.corpus import PHRASES, Authors, Document, completion, documents
from sapo_client.lab.held_out import fresh_item, reward
from sapo_client.lab.pretrain import (
    FROM_A_POLICY,
    FROM_NOTHING,
    KIND_A,
    KIND_B,
    Progress,
    corpus_of,
    new_model,
    pretrain,
    recipe_named,
    save,
    update,
)
from sapo_client.lab.tokenizer import END, VOCABULARY, train_tokenizer, words_of_prompts
from sapo_client.learner.policy import load_policy
from sapo_verification.suites.catalogue import FAMILIES, family

NANO = [family(name, "nano") for name in FAMILIES]


def test_documents_are_solved_items() -> None:
    corpus = documents(NANO, 3, seed=1)
    assert list(corpus) == list(FAMILIES)
    assert corpus == documents(NANO, 3, seed=1)
    assert corpus != documents(NANO, 3, seed=2)
    assert len({document.prompt for found in corpus.values() for document in found}) > 20


def test_a_corpus_has_every_level_of_its_recipe() -> None:
    recipe = recipe_named("ladders")
    corpus = corpus_of(recipe, ["basic_arithmetic"], 5, seed=1)
    levels = [documents([family("basic_arithmetic", level)], 5, seed=1) for level in recipe.levels]
    assert corpus == {"basic_arithmetic": [item for found in levels for item in found["basic_arithmetic"]]}
    assert len({tuple(found["basic_arithmetic"]) for found in levels}) == 3


def test_each_author_writes_in_its_own_way() -> None:
    document, sibling = Document("f", "p", "12"), Document("f", "q", "34")
    draw = random.Random(0)
    write = {
        authors: {completion(document, [sibling], authors, draw) for _ in range(200)}
        for authors in (Authors(0, 0), Authors(1, 0), Authors(0, 1))
    }
    assert list(write.values()) == [{"12"}, {phrase.replace("{}", "12") for phrase in PHRASES}, {"34"}]


def test_shares_of_authors_must_not_exceed_one() -> None:
    with pytest.raises(SapoError, match="more than the whole") as refused:
        Authors(chatty=0.7, guesser=0.4)
    assert (refused.value.exit_code, refused.value.hint != "") == (2, True)


@pytest.mark.parametrize("name", FAMILIES)
def test_only_the_bare_answer_is_rewarded(name: str) -> None:
    """The chatty author's phrases have reward 0, so that reinforcement learning can improve on them."""
    from sapo_verification.tasks.generators import solution

    chosen, draw = family(name, "nano"), random.Random(name)
    items = [fresh_item(chosen, draw)[1] for _ in range(20)]
    pairs = [(item, answer) for item in items if (answer := solution(chosen, item)) is not None]
    assert pairs
    for item, answer in pairs:
        assert reward(chosen, item, answer) == 1.0
        assert [reward(chosen, item, phrase.replace("{}", answer)) for phrase in PHRASES] == [0.0] * len(
            PHRASES
        )


def test_transformers_loads_the_trained_tokenizer(tmp_path: Path) -> None:
    """transformers rebuilds Qwen2 tokenizers by its own rules; it must tokenize as in pretraining."""
    texts = [document.prompt for found in documents(NANO, 20, seed=3).values() for document in found]
    tokenizer = train_tokenizer(texts)
    save(new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id), tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert len(loaded) == len(tokenizer) <= VOCABULARY


def test_digits_are_never_merged() -> None:
    tokenizer = train_tokenizer(["1234567 = 12345"] * 50)
    ids = tokenizer("1234567")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == list("1234567")
    assert tokenizer.decode(tokenizer("∀ 12\n&")["input_ids"]) == "∀ 12\n&"
    assert tokenizer.eos_token == END


def test_tags_are_one_token_each_and_stay_text(tmp_path: Path) -> None:
    """They are no special tokens: other nodes' completions hold them, and decoding must keep them."""
    text = "27:6,Friday-6<answer>Saturday</answer>"
    tokenizer = train_tokenizer(["Friday", "Saturday"] * 9, whole=("<answer>", "</answer>"))
    save(new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id), tokenizer, tmp_path)
    policy = load_policy(str(tmp_path), "cpu")
    tokens = policy.encode_completion(text, 100)
    assert policy.tokenizer.convert_ids_to_tokens(tokens) == [
        *("2", "7", ":", "6", ",", "Friday", "-", "6", "<answer>", "Saturday", "</answer>", END)
    ]
    assert policy.decode(tokens) == text


def test_only_words_of_prompts_are_merged() -> None:
    assert words_of_prompts(["Friday -27\n", "12 + 7 =\n", "(P>Q)&~P; ?\n", ">8+[<12+>-]<\n"]) == [
        *("Friday", " -", " +", " =", " ?")
    ]


def test_a_recipe_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SapoError, match="specialist-c") as refused:
        recipe_named("specialist-c")
    assert (refused.value.exit_code, "specialist-b" in str(refused.value.hint)) == (2, True)


def test_specialists_share_a_tokenizer_and_no_family(tmp_path: Path) -> None:
    assert not set(KIND_A) & set(KIND_B)
    for name in ("specialist-a", "specialist-b"):
        pretrain(tmp_path / name, replace(recipe_named(name), steps=1, documents=5))
    one, other = (
        load_policy(str(tmp_path / name), "cpu").tokenizer for name in ("specialist-a", "specialist-b")
    )
    assert one.get_vocab() == other.get_vocab()
    assert [len(one(text)["input_ids"]) for text in ("Friday", "<answer>", "1011", ")&(")] == [1, 1, 4, 3]


def test_both_arithmetics_compute_the_same_step() -> None:
    """Products in bfloat16 have three decimal digits."""
    tokenizer = train_tokenizer(["12 + 7 = 19"])
    lines = [([40 + n, 50], [60, 61, 62][: 1 + n % 3]) for n in range(40)]
    losses = []
    for bfloat16 in (False, True):
        torch.manual_seed(0)
        model = new_model(len(tokenizer), 0, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        steps = [update(model, optimizer, lines, 1, bfloat16=bfloat16) for _ in range(3)]
        losses.append(steps)
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0][2] < losses[0][0]


def test_pretraining_is_reproducible(tmp_path: Path) -> None:
    seen: list[list[Progress]] = []
    for name in ("one", "two"):
        steps: list[Progress] = []
        recipe = replace(FROM_NOTHING, families=("calendar_arithmetic", "basic_arithmetic"), steps=3)
        pretrain(tmp_path / name, replace(recipe, documents=50), progress=steps.append)
        seen.append(steps)
    assert seen[0] == seen[1]
    assert [progress.step for progress in seen[0]] == [1, 2, 3]
    assert seen[0][-1].loss < seen[0][0].loss
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert load_policy(str(tmp_path / "one"), "cpu").tokenizer.eos_token == END


@pytest.mark.long
def test_a_policy_is_trained_further_with_other_authors(tmp_path: Path) -> None:
    """The tokenizer is the old policy's."""
    start = make_policy_folder(tmp_path / "start")
    names = ("calendar_arithmetic",)
    recipe = replace(FROM_A_POLICY, families=names, steps=60, authors=Authors(0, 0), start=str(start))
    steps: list[Progress] = []
    pretrain(tmp_path / "end", replace(recipe, documents=50), progress=steps.append)
    before, after = (load_policy(str(tmp_path / name), "cpu") for name in ("start", "end"))
    assert after.tokenizer.get_vocab() == before.tokenizer.get_vocab()
    assert steps[-1].loss < steps[0].loss
