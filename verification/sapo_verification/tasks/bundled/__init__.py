"""The bundled release of ReasoningGYM; the page beside says why it is bundled.

Only the modules of the families that are asked for are imported: the packages' own ``__init__`` would import
all hundred of them, with sympy, numpy and a compiled solver.
"""

import importlib
import sys
from datetime import date, datetime, time
from functools import cache
from hashlib import sha256
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sapo_protocol.errors import LocalProtocolError
from sapo_verification.tasks.bundled.modules import MODULES

RELEASE: Final = "0.1.25"
WHEEL: Final = Path(__file__).with_name(f"reasoning_gym-{RELEASE}-py3-none-any.whl")
SHA256: Final = "7f17a3eddb13c015d7d4a755ed576a061df889faf9468bcc2cca334ebe9e0435"
"""Of the wheel, as the package index states it: every node must derive the same items."""

TODAY: Final = date(2000, 1, 1)
"""The day on which ``time_intervals`` sets times of day, which is the clock's in ReasoningGYM.

Every node must derive the same items, also two that are on two sides of midnight."""

_LIBRARY: Final = "reasoning_gym"
_PACKAGES: Final = (
    *("algebra", "algorithmic", "arc", "arithmetic", "code", "cognition", "games", "geometry", "graphs"),
    *("induction", "induction.acre", "logic", "probability"),
)
"""Packages that are not run: their ``__init__`` only imports all their modules, or does not exist."""


def create_dataset(name: str, **settings: Any) -> Any:
    """Return a new data set of a family, as ReasoningGYM's function of this name does.

    Args:
        name: a family of the catalogue.
        settings: the fields of the generator's configuration.

    Raises:
        LocalProtocolError: the bundled file is damaged, or another ReasoningGYM is in use in this process.
    """
    _import_family(name)
    factory = importlib.import_module(f"{_LIBRARY}.factory")
    return factory.create_dataset(name, **settings)


@cache
def _import_family(name: str) -> None:
    _open()
    if name == "game_of_life":
        sys.modules["cellpylib"] = importlib.import_module(f"{__name__}.game_of_life")
    if name == "acre":
        _import_blicket()
    module = importlib.import_module(f"{_LIBRARY}.{MODULES[name]}")
    if name == "time_intervals":
        vars(module).update(date=_FixedDate, parser=_FixedParser)


class _FixedDate(date):
    """The class ``date`` of the module ``time_intervals``."""

    @classmethod
    def today(cls) -> "_FixedDate":
        """Return the fixed day."""
        return cls(TODAY.year, TODAY.month, TODAY.day)


class _FixedParser:
    """The part of ``dateutil.parser`` that the module ``time_intervals`` uses."""

    @staticmethod
    def parse(text: str) -> datetime:
        """Return a date and time, of which the day is the fixed one if the text has none."""
        parser = importlib.import_module("dateutil.parser")
        found: datetime = parser.parse(text, default=datetime.combine(TODAY, time.min))
        return found


@cache
def _open() -> None:
    """Make the wheel's modules importable, before and instead of an installed release."""
    found = sha256(WHEEL.read_bytes()).hexdigest()
    if found != SHA256:
        raise LocalProtocolError(f"{WHEEL} is damaged (SHA-256 {found}); install sapo-swarm again")
    if _LIBRARY in sys.modules:
        raise LocalProtocolError("this process has imported another ReasoningGYM than the bundled one")
    for name in (_LIBRARY, *(f"{_LIBRARY}.{package}" for package in _PACKAGES)):
        package = ModuleType(name)
        package.__path__ = [str(WHEEL.joinpath(*name.split(".")))]
        sys.modules[name] = package
    # it and the factory import each other, and only this one can be the first
    importlib.import_module(f"{_LIBRARY}.coaching")


def _import_blicket() -> None:
    """Import the one module that opens a data file by its path, which a file within a zip file has not."""
    name = f"{_LIBRARY}.induction.acre.blicket"
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise LocalProtocolError(f"{WHEEL} lacks {name}")
    module = module_from_spec(spec)
    vars(module)["open"] = lambda path, mode: path.open(mode, encoding="utf-8")
    sys.modules[name] = module
    spec.loader.exec_module(module)
