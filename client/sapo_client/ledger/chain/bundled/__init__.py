"""The bundled wheel of Ethereum's execution specification, made importable; the page beside says why."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Final

WHEEL: Final = Path(__file__).with_name("ethereum_execution-2.20.0-py3-none-any.whl")


def make_importable() -> None:
    """Put the wheel at the end of the import path, unless another copy of the library is there already."""
    if "ethereum.forks" in sys.modules:
        return
    if str(WHEEL) not in sys.path:
        sys.path.append(str(WHEEL))
    import ethereum

    if Path(ethereum.__file__).is_relative_to(WHEEL):
        # Folders without __init__.py are packages on a disk, but not in a zip file.
        forks = ModuleType("ethereum.forks")
        forks.__path__ = [str(WHEEL / "ethereum" / "forks")]
        sys.modules[forks.__name__] = forks
