"""Fixtures of the findings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ledger import Contracts, found


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Contracts]:
    """Return a ledger with four auditors of whom three agree."""
    founded = found(tmp_path / "chain.sqlite")
    yield founded
    founded.chain.close()
