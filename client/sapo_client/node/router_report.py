"""The report on the router's port mapping."""

from sapo_client.observe.reports import RouterReport
from sapo_client.swarm.router.answers import RouterView


def router_report(view: RouterView | None) -> RouterReport | None:
    """Return the report of a router; None if the node does not use one."""
    if view is None:
        return None
    return RouterReport(
        state=view.state.value,
        host=view.host,
        port=view.port,
        external_host=view.external_host,
        is_behind_another=view.is_behind_another,
        detail=view.detail,
    )
