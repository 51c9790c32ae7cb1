"""An embedded chain with contracts for each test, or for each module that only reads it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ledger import Contracts, ServedChain, found


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Contracts]:
    founded = found(tmp_path / "chain.sqlite")
    yield founded
    founded.chain.close()


@pytest.fixture
def chain(contracts: Contracts) -> ServedChain:
    """The chain of the contracts."""
    return contracts.chain


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contracts]:
    founded = found(tmp_path_factory.mktemp("chain") / "chain.sqlite")
    yield founded
    founded.chain.close()
