"""When the attackers of a testnet begin."""

import pytest

from sapo_client.testnet.attack_results import may_attack
from sapo_client.testnet.node_record import NodeRecord

UP = NodeRecord("ada", starts=1)
COMING = NodeRecord("bo")


@pytest.mark.parametrize(
    ("epoch", "wanted", "records", "begins"),
    [
        (-1, 0, [UP, UP], True),
        (-1, 0, [UP, COMING], False),
        (0, 0, [COMING, COMING], False),
        (3, 4, [UP, UP], False),
        (4, 4, [UP, UP], True),
        (4, 4, [COMING, UP], False),
    ],
)
def test_nothing_is_sent_before_every_node_can_refuse_it(
    epoch: int, wanted: int, records: list[NodeRecord], begins: bool
) -> None:
    assert may_attack(epoch, wanted, records) is begins
