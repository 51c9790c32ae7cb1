"""Nodes of a sapo swarm from Python: run real ones from a script or a notebook, and follow what they do.

    import sapo

    with sapo.Node("runs/first", alone=True, steps=20) as node:
        for summary in node.rounds():
            print(summary.line())

Everything in ``__all__`` is public and changes only with a line in the changelog. The packages below it
(``sapo_client``, ``sapo_verification``, ``sapo_protocol``) are not.
"""

from sapo.node import Node
from sapo.rollouts import ScoredRollout
from sapo.swarm import found_swarm
from sapo_client.errors import SapoError
from sapo_client.observe.findings import HealthFinding
from sapo_client.observe.status import RoundSummary

__all__ = ["HealthFinding", "Node", "RoundSummary", "SapoError", "ScoredRollout", "found_swarm"]
