"""Write every own answer with its reward to a table: python record_rewards.py FOLDER TABLE.csv [STEPS]"""

import csv
import sys
from pathlib import Path

import sapo


def main(folder: str, table: Path, steps: int) -> None:
    """Train alone, and write one row per answer."""
    with table.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["epoch", "slot", "family", "prompt", "answer", "reward"])
        node = sapo.Node(folder, alone=True, steps=steps, settings={"learner.temperature": 0.8})

        @node.on_reward
        def write(rollout: sapo.ScoredRollout) -> None:
            for answer, reward in zip(rollout.completions, rollout.rewards, strict=True):
                rows.writerow([rollout.epoch, rollout.slot, rollout.family, rollout.prompt, answer, reward])

        with node:
            node.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20)
