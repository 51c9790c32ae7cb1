"""Networks of accounts: prefixes of public addresses, of which the first one is kept."""

from pathlib import Path

import pytest

from sapo_protocol.identifiers import Account
from sapo_verification.reputation.origins import Origins, network_of_host

ALICE, BOB, CAROL = (Account(bytes((n,)) * 20) for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("9.9.9.9", "9.9.9.0/24"),
        ("9.9.9.255", "9.9.9.0/24"),
        ("9.9.10.1", "9.9.10.0/24"),
        ("::ffff:9.9.9.9", "9.9.9.0/24"),
        ("2620:fe::9", "2620:fe::/48"),
        ("2620:fe:0:ffff::1", "2620:fe::/48"),
        ("2620:fe:1::1", "2620:fe:1::/48"),
        ("127.0.0.1", None),
        ("10.1.2.3", None),
        ("192.168.0.7", None),
        ("172.16.0.1", None),
        ("169.254.1.1", None),
        ("0.0.0.0", None),
        ("::1", None),
        ("fe80::1%eth0", None),
        ("fd00::1", None),
        ("::ffff:10.0.0.1", None),
        ("example.org", None),
        ("", None),
    ],
)
def test_addresses_are_mapped_to_their_network(host: str, network: str | None) -> None:
    assert network_of_host(host) == network


def test_the_first_network_of_an_account_stays(tmp_path: Path) -> None:
    origins = Origins(tmp_path / "node.sqlite")
    for host in ("127.0.0.1", "9.9.9.9", "8.8.8.8"):
        origins.learn(ALICE, host)
    again = Origins(tmp_path / "node.sqlite")
    assert [each.network_of(ALICE) for each in (origins, again)] == ["9.9.9.0/24"] * 2
    assert again.network_of(BOB) is None


def test_the_oldest_are_forgotten_first() -> None:
    origins = Origins(max_origins=2)
    for account in (ALICE, BOB, CAROL):
        origins.learn(account, "9.9.9.9")
    assert [origins.network_of(account) for account in (ALICE, BOB, CAROL)] == [
        None,
        "9.9.9.0/24",
        "9.9.9.0/24",
    ]
