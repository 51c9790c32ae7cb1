"""One embedded chain per test module, one fresh set of contracts per test."""

from collections.abc import Iterator

import pytest
from support.ledger import NOW_SECONDS, Contracts, ServedChain, deploy_contracts


@pytest.fixture(scope="module")
def module_chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedChain]:
    served = ServedChain(tmp_path_factory.mktemp("chain") / "chain.sqlite")
    yield served
    served.close()


@pytest.fixture
def chain(module_chain: ServedChain) -> ServedChain:
    """The module's chain, its clock at the usual start (block times never fall, so it only stands still)."""
    module_chain.now_seconds = float(NOW_SECONDS)
    return module_chain


@pytest.fixture
def contracts(chain: ServedChain) -> Contracts:
    return deploy_contracts(chain)
