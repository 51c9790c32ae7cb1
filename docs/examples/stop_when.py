"""Stop a node when its reward has reached a mark: python stop_when.py FOLDER [MARK] [MAX_STEPS]"""

import sys
from collections import deque

import sapo

ROUNDS = 10
"""The mean is over so many rounds: one round's reward is noise."""


def main(folder: str, mark: float, max_steps: int) -> None:
    """Train alone until the mean reward is high enough."""
    recent: deque[float] = deque(maxlen=ROUNDS)
    node = sapo.Node(folder, alone=True, steps=max_steps)

    @node.on_round
    def look(summary: sapo.RoundSummary) -> None:
        recent.append(summary.reward)
        if len(recent) == ROUNDS and sum(recent) / ROUNDS >= mark:
            node.request_stop()

    with node:
        node.wait()
    mean = sum(recent) / len(recent)
    print(f"step {node.step}: mean reward {mean:.2f} over the last {len(recent)} rounds")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(
        sys.argv[1],
        float(sys.argv[2]) if len(sys.argv) > 2 else 0.5,
        int(sys.argv[3]) if len(sys.argv) > 3 else 200,
    )
