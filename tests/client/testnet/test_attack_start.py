"""When the attackers of a testnet begin."""

import pytest

from sapo_client.testnet.attack_results import may_attack
from sapo_client.testnet.node_record import NodeRecord

READY = NodeRecord("ada", starts=1, published={"rollout"})
STARTED = NodeRecord("bo", starts=1)


@pytest.mark.parametrize(
    ("epoch", "wanted", "records", "begins"),
    [
        (0, 0, [READY, READY], True),
        (0, 0, [READY, STARTED], False),
        (0, 0, [STARTED, STARTED], False),
        (3, 4, [READY, READY], False),
        (4, 4, [READY, READY], True),
        (4, 4, [STARTED, READY], False),
    ],
)
def test_nothing_is_sent_before_every_node_can_refuse_it(
    epoch: int, wanted: int, records: list[NodeRecord], begins: bool
) -> None:
    assert may_attack(epoch, wanted, records) is begins
