"""Train two nodes alone, side by side, that differ in one setting, and plot their rewards.

python compare_temperatures.py FOLDER [STEPS]

One pair of runs says little: `sapo lab run` repeats such a comparison over seeds.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import sapo

TEMPERATURES = (0.7, 1.0)


def main(folder: Path, steps: int) -> None:
    """Train both, and write rewards.png."""
    rewards: dict[float, list[float]] = {temperature: [] for temperature in TEMPERATURES}
    nodes = []
    for temperature in TEMPERATURES:
        settings = {"learner.temperature": temperature}
        node = sapo.Node(folder / f"at-{temperature}", alone=True, steps=steps, settings=settings)
        node.on_round(lambda summary, own=rewards[temperature]: own.append(summary.reward))
        nodes.append(node.start())
    for node in nodes:
        node.wait()
    for temperature, values in rewards.items():
        plt.plot(range(1, len(values) + 1), values, label=f"temperature {temperature} (one run)")
    plt.xlabel("round")
    plt.ylabel("mean reward of own answers, not smoothed")
    plt.legend()
    plt.savefig(folder / "rewards.png")
    print(f"plotted {len(rewards[TEMPERATURES[0]])} rounds in {folder / 'rewards.png'}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
