"""Without vLLM, the learner's settings that need it are refused; `tests/vllm_cpu` has what needs it."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from sapo_client.errors import SapoError
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_a_missing_vllm_is_reported_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="this needs vLLM") as caught:
        Service(LearnerSettings("bundled", tmp_path, device="cpu", vllm=True))
    assert "transformers" in caught.value.hint
