"""Starting atheris on one target: ``python tests/fuzz/atheris_decoder.py [libFuzzer options]``.

The committed corpus is read, new findings go to ``.fuzz/`` (ignored by git); a crash leaves a file that
becomes part of ``tests/corpus/`` once it is understood. Needs the extra ``fuzz``.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / name) for name in ("tests", "protocol", "verification")]


def drive(name: str) -> None:
    """Fuzz a target until it is stopped or fails."""
    sys.path[:0] = PATHS
    import atheris

    with atheris.instrument_imports(include=["sapo_protocol", "sapo_verification"]):
        from fuzz.targets import TARGETS

    found = ROOT / ".fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    options = ["-max_len=4096", f"-artifact_prefix={found}/crash-"]
    folders = [str(found), str(ROOT / "tests/corpus" / name)]
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:], *folders], TARGETS[name])
    atheris.Fuzz()
