"""An endpoint of a stranger's invitation redirects nodes to services of their own machine or network."""

import pytest
from support.redirecting import redirecting

from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.ledger.rpc import Rpc


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_of_an_endpoint_are_not_followed(status: int) -> None:
    with redirecting(status) as (endpoint, asked), pytest.raises(LedgerUnavailable, match="redirects"):
        Rpc([endpoint]).chain_id()
    assert asked == []
