"""A loss of others' answers; the learner's process imports it, and only that one has torch."""

import os
from pathlib import Path

from torch import Tensor

from sapo_client.learner.losses.external import ExternalRows, reinforce


def halved(rows: ExternalRows) -> Tensor:
    """Return half of the paper's loss, (B, T), and leave a note where SAPO_TOY_NOTE says."""
    if note := os.environ.get("SAPO_TOY_NOTE"):
        Path(note).write_text(f"{len(rows.rewards)} rows\n", encoding="utf-8")
    return 0.5 * reinforce(rows)
