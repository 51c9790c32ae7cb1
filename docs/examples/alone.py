"""Train one node without a swarm: python alone.py FOLDER [STEPS]

Start it again with the same folder, and it goes on where it stopped.
"""

import sys

import sapo


def main(folder: str, steps: int) -> None:
    """Train, and print one line per round."""
    with sapo.Node(folder, alone=True, steps=steps) as node:
        print(f"account {node.account} begins at step {node.step}")
        for summary in node.rounds():
            print(summary.line())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
