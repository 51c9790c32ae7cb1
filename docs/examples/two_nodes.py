"""Found a swarm of two nodes on this machine, and count what each got from the other.

python two_nodes.py FOLDER [STEPS]
"""

import sys
from collections import Counter
from pathlib import Path

import sapo

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


def main(folder: Path, steps: int) -> None:
    """Train both nodes; print by family how many rollouts the first one scored, and how many were right."""
    manifest = sapo.found_swarm(folder / "swarm", name="pair")
    first = sapo.Node(folder / "first", manifest=manifest, listen=LISTEN)
    groups: Counter[str] = Counter()
    right: Counter[str] = Counter()

    @first.on_external
    def count(rollout: sapo.ScoredRollout) -> None:
        groups[rollout.family] += 1
        right[rollout.family] += sum(reward == 1.0 for reward in rollout.rewards)

    with first:
        others = first.addresses
        with sapo.Node(folder / "second", manifest=manifest, listen=LISTEN, bootstrap=others) as second:
            for summary in second.rounds():
                print(f"second: {summary.line()}")
                if summary.round >= steps and groups:
                    break
    for family, number in sorted(groups.items()):
        print(f"{family}: {number} rollouts of the other node, {right[family]} right answers")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
