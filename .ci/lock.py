"""Renew the lock: every package that the project installs, by version and hash, for Linux and macOS.

Run it with ``make lock`` (``make lock UPGRADE=--upgrade`` takes the newest releases).
It resolves ``pyproject.toml`` with uv and writes three files:

* ``lock/dev.txt``: the node, every extra but those in ``UNLOCKED``, and the tools of the tests;
* ``lock/demo.txt``: the part of it that ``make demo`` installs;
* ``lock/torch.txt``: PyTorch's range. Each platform has builds of its own (CPU, several CUDA releases, ROCm),
  each with other hashes and other companions, so pip takes any build of a release within the range.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNLOCKED = {"vllm", "fuzz"}
"""Extras that no test installs: one needs CUDA's build of PyTorch, the other a compiler."""
DEMO = {"testnet"}
"""Extras of ``make demo``."""
TORCH_BELOW = "2.14"
"""``pyproject.toml`` admits 2.14, which vLLM 0.33 pins; of it the learner's tests alone were run."""

TORCH = re.compile(r"(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)(\[[\w,-]+\])?==")
"""PyTorch and what only its CUDA builds need: they come with the build that is chosen."""
HEADER = """\
# Renewed by `make lock` from pyproject.toml; do not edit.
# PyTorch and what belongs to one of its builds is not here: lock/torch.txt has its range.
"""


def extras() -> set[str]:
    """Return the names of the extras that ``pyproject.toml`` declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def torch_range() -> str:
    """Return the range of ``pyproject.toml`` below the first release with which the suite does not run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = next(str(line) for line in project["dependencies"] if re.match(r"torch\b", line))
    return re.sub(r"<[\d.]+", f"<{TORCH_BELOW}", required)


def compile_pins(file: Path, chosen: set[str], *options: str) -> None:
    """Let uv write its resolution of the core and these extras, for every supported Python and platform.

    uv keeps the releases that the file names already, where they still satisfy ``pyproject.toml``.
    """
    command = [os.environ.get("UV", "uv"), "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
    command += [
        "--python-version",
        "3.11",
        "--no-header",
        "--no-annotate",
        "--output-file",
        str(file),
        *options,
    ]
    command += [option for extra in sorted(chosen) for option in ("--extra", extra)]
    subprocess.run([*command, "pyproject.toml"], cwd=ROOT, check=True)
    file.write_text(HEADER + without_torch(file.read_text(encoding="utf-8")), encoding="utf-8")


def without_torch(pins: str) -> str:
    """Return the pins without PyTorch, its companions and their hashes.

    Args:
        pins: requirements in pip's form; hashes and comments of a package are indented below it.
    """
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", pins)
    kept = "".join(block for block in blocks if not TORCH.match(block))
    markers = Counter(re.findall(r"(?m) ; .*(?= \\$)", kept))
    for marker, _times in markers.most_common(1):  # it repeats what [tool.uv] says for every package
        kept = kept.replace(f"{marker} \\\n", " \\\n")
    return kept


def main() -> None:
    """Write the three files."""
    folder = ROOT / "lock"
    folder.mkdir(exist_ok=True)
    compile_pins(folder / "dev.txt", extras() - UNLOCKED, *sys.argv[1:])
    shutil.copyfile(folder / "dev.txt", folder / "demo.txt")  # uv then chooses the same releases
    compile_pins(folder / "demo.txt", extras() & DEMO)
    (folder / "torch.txt").write_text(HEADER.splitlines()[0] + f"\n{torch_range()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
