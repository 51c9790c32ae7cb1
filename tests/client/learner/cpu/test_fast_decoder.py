"""Sampling of one token from logits; whole completions are tested with the generators."""

import torch

from sapo_client.learner.cpu.fast_decoder import _sample


def test_an_impossible_token_is_never_sampled() -> None:
    """First, last or between others: the cumulative sum does not grow there."""
    logits = torch.tensor([-torch.inf, 0.5, -torch.inf, 1.0, -torch.inf]).expand(5000, -1)
    tokens, logprobs = _sample(logits, 0.7, torch.Generator().manual_seed(0))
    assert set(tokens.tolist()) == {1, 3}
    assert torch.allclose(logprobs, (logits[0] / 0.7).log_softmax(-1)[tokens], atol=1e-6)


def test_a_large_vocabulary_is_sampled_by_blocks() -> None:
    """Frequencies of 20,000 samples of 5,000 tokens, of which every other one is impossible."""
    torch.manual_seed(0)
    logits, count = torch.randn(5000) * 3, 20_000
    logits[::2] = -torch.inf
    random = torch.Generator().manual_seed(1)
    parts = [_sample(logits.expand(500, -1), 1.0, random)[0] for _ in range(count // 500)]
    seen = torch.bincount(torch.cat(parts), minlength=5000) / count
    wanted = logits.softmax(-1)
    assert seen[::2].sum() == 0
    assert ((seen - wanted).abs() <= 7 * (wanted * (1 - wanted) / count).sqrt() + 2 / count).all()
