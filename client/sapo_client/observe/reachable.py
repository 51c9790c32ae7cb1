"""Whether peers can connect to a node, in one sentence."""

from __future__ import annotations

from typing import Final

from sapo_client.observe.reports import RouterReport

UNKNOWN: Final = "not known yet: two peers have to try"
REACHABLE: Final = "peers can connect to this node"
UNREACHABLE: Final = "peers cannot connect to this node; it works through the connections that it opens"


def reachable_text(reachable: str, router: RouterReport | None) -> str:
    """Return a sentence about the fields `reachable` and `router` of a node's status."""
    if router is not None and router.state == "mapped":
        return _by_router(reachable, router)
    if reachable != "unreachable":
        return REACHABLE if reachable == "reachable" else UNKNOWN
    return UNREACHABLE + _without_router(router)


def _by_router(reachable: str, router: RouterReport) -> str:
    if reachable == "reachable":
        return f"peers can connect to this node through the router's port {router.port} (UPnP)"
    forwards = f"the router forwards its port {router.port} to this node (UPnP)"
    if reachable == "unknown":
        return f"{forwards}; two peers have to try it"
    if router.is_behind_another:
        return (
            f"peers cannot connect to this node: {forwards}, but its own address {router.external_host}"
            " is not public, so it is behind another router"
        )
    return f"peers cannot connect to this node, although {forwards}"


def _without_router(router: RouterReport | None) -> str:
    if router is None or router.state == "waiting":
        return ""
    if router.state == "silent":
        return "; no router answered (UPnP)"
    if router.state == "refused":
        return f"; the router refused to forward a port (UPnP): {router.detail}"
    return f"; the device that answered as the router cannot be used (UPnP): {router.detail}"
