"""Two ranks of one learner, each of which samples with an engine of its own."""

from pathlib import Path

import pytest
from support.learner_child import LearnerHere, learner_child

from sapo_client.learner.settings import LearnerSettings

PROMPTS = ["12 + 7 =\n", "6/8\n", "Monday +3\n"]


@pytest.mark.parametrize("rank", [0, 4])
def test_each_rank_samples_with_its_engine_and_both_train(tmp_path: Path, rank: int) -> None:
    """The greedy answers after two steps are those of the exported policy without vLLM."""
    settings = LearnerSettings(
        "bundled",
        tmp_path / "two",
        device="cpu",
        vllm=True,
        ranks=2,
        lora_rank=rank,
        learning_rate=1e-3,
        max_new_tokens=8,
    )
    with learner_child(settings) as two:
        for step in range(2):
            handles = [3 * step + index for index in (1, 2, 3)]
            sampled = two.call("generate", prompts=PROMPTS, completions_per_prompt=2, handles=handles)
            assert [len(texts) for texts in sampled["completions"]] == [2, 2, 2]
            groups = [
                {"prompt": prompt, "completions": texts, "rewards": [0.0, 1.0], "external": False}
                | {"handle": handle, "family": 0}
                for prompt, texts, handle in zip(PROMPTS, sampled["completions"], handles, strict=True)
            ]
            report = two.call("train", groups=groups)
            assert (report["reencoded_groups"], report["ranks"], report["mismatch"] < 1e-3) == (0, 2, True)
        answers = two.call("evaluate", prompts=PROMPTS)
        two.call("export", folder=str(tmp_path / "exported"))
    exported = LearnerSettings(str(tmp_path / "exported"), tmp_path / "one", device="cpu", max_new_tokens=8)
    assert LearnerHere(exported).call("evaluate", prompts=PROMPTS) == answers
