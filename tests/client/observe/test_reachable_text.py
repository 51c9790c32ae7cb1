"""A node's statement about its reachability: one sentence for each case."""

from __future__ import annotations

import pytest

from sapo_client.observe.reachable import reachable_text
from sapo_client.observe.reports import RouterReport

MAPPED = RouterReport(state="mapped", host="192.168.1.1", port=4001, external_host="203.0.113.7")
BEHIND = RouterReport(
    state="mapped", host="192.168.1.1", port=4001, external_host="100.64.0.7", is_behind_another=True
)
OPENS = "peers cannot connect to this node; it works through the connections that it opens"


@pytest.mark.parametrize(
    ("reachable", "router", "text"),
    [
        ("unknown", None, "not known yet: two peers have to try"),
        ("reachable", None, "peers can connect to this node"),
        ("reachable", RouterReport(state="waiting"), "peers can connect to this node"),
        ("reachable", MAPPED, "peers can connect to this node through the router's port 4001 (UPnP)"),
        (
            "unknown",
            MAPPED,
            "the router forwards its port 4001 to this node (UPnP); two peers have to try it",
        ),
        (
            "unreachable",
            MAPPED,
            "peers cannot connect to this node, although the router forwards its port 4001 to this node"
            " (UPnP)",
        ),
        (
            "unreachable",
            BEHIND,
            "peers cannot connect to this node: the router forwards its port 4001 to this node (UPnP), but"
            " its own address 100.64.0.7 is not public, so it is behind another router",
        ),
        ("unreachable", None, OPENS),
        ("unreachable", RouterReport(state="waiting"), OPENS),
        ("unreachable", RouterReport(state="silent"), f"{OPENS}; no router answered (UPnP)"),
        (
            "unreachable",
            RouterReport(state="refused", detail="Action not authorized"),
            f"{OPENS}; the router refused to forward a port (UPnP): Action not authorized",
        ),
        (
            "unreachable",
            RouterReport(state="unusable", detail="it is in another network"),
            f"{OPENS}; the device that answered as the router cannot be used (UPnP):"
            " it is in another network",
        ),
    ],
)
def test_each_case_has_one_sentence(reachable: str, router: RouterReport | None, text: str) -> None:
    assert reachable_text(reachable, router) == text
