"""Tests of vLLM itself, on a CPU: `make vllm` builds an environment for them and runs them."""

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where vLLM is missing; it looks at deprecated attributes of PyTorch, which is no error here."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM: `make vllm`"))
            item.add_marker(pytest.mark.filterwarnings("default"))
