"""Which GPUs a build of PyTorch can run on."""

from __future__ import annotations

import pytest

from sapo_client.learner.sizing.kernels import has_kernels

WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90", "compute_90"]


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((7, 5), WHEEL, True),
        ((7, 0), WHEEL, False),  # older than all of them
        ((8, 0), WHEEL, True),
        ((8, 9), WHEEL, True),  # machine code of 8.6 runs on 8.9
        ((12, 0), WHEEL, True),  # from the intermediate code of 9.0
        ((12, 0), WHEEL[:-1], False),
        ((10, 0), ["sm_90a", "sm_100", "sm_120"], True),
        ((12, 1), ["sm_90a", "sm_100", "sm_120"], True),
        ((11, 0), ["sm_90a", "sm_100", "sm_120"], False),
        ((9, 0), [], False),
        ((9, 0), ["gfx942", "sm_", "sm_90"], True),
    ],
)
def test_a_build_runs_on_the_gpu_architectures_it_was_compiled_for(
    capability: tuple[int, int], built_for: list[str], runs: bool
) -> None:
    assert has_kernels(capability, built_for) is runs
