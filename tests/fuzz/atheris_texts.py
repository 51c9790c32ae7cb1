"""Coverage-guided fuzzing of answers in completions; see ``driving.py``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.driving import drive

if __name__ == "__main__":
    drive("texts")
