"""Arguments of `sapo.Node` and `sapo.found_swarm` that Python would take, and that mean something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sapo

ADDRESS = "/ip4/127.0.0.1/tcp/4001"


@pytest.mark.parametrize(
    ("arguments", "text", "hint"),
    [
        ({"bootstrap": ADDRESS}, "bootstrap takes a list", f"write bootstrap=['{ADDRESS}']"),
        ({"listen": ADDRESS}, "listen takes a list", f"write listen=['{ADDRESS}']"),
        ({"rpc_urls": "http://x"}, "rpc_urls takes a list", "write rpc_urls=['http://x']"),
        ({"steps": 0}, "steps is a number of training steps, and 0 is none", "an integer of 1 or more"),
        ({"steps": -1}, "and -1 is none", "an integer of 1 or more"),
        ({"steps": 1.5}, "and 1.5 is none", "an integer of 1 or more"),
        ({"steps": True}, "and True is none", "an integer of 1 or more"),
        ({"alone": True, "manifest": "m.json"}, "manifest and alone=True are given", "leave out manifest"),
        ({"alone": True, "bootstrap": [ADDRESS]}, "bootstrap and alone=True", "leave out bootstrap"),
        ({"alone": True, "listen": [ADDRESS]}, "listen and alone=True", "leave out listen"),
        ({"alone": True, "rpc_urls": ["http://x"]}, "rpc_urls and alone=True", "leave out rpc_urls"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_argument_that_means_something_else_is_refused_before_anything_is_written(
    arguments: dict[str, Any], text: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(sapo.SapoError) as caught:
        sapo.Node(tmp_path / "node", **arguments)
    assert text in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_one_family_as_a_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sapo.SapoError, match="families takes a list, and 'gcd' is one text") as caught:
        sapo.found_swarm(tmp_path / "swarm", families="gcd", level="easy")
    assert caught.value.hint == "write families=['gcd']"
    assert list(tmp_path.iterdir()) == []


def _fields(documented: type) -> list[str]:
    return [name for name in getattr(documented, "__dataclass_fields__", ()) if not name.startswith("_")]


@pytest.mark.parametrize(
    "public", [getattr(sapo, name) for name in sapo.__all__], ids=lambda each: each.__name__
)
def test_help_explains_every_public_name_and_each_of_its_fields(public: Callable[..., object]) -> None:
    text = public.__doc__ or ""
    assert text.strip()
    assert [name for name in _fields(public) if f"\n        {name}: " not in text] == []  # type: ignore[arg-type]
    methods = [each for name, each in vars(public).items() if not name.startswith("_") and callable(each)]
    assert [each.__name__ for each in methods if not (each.__doc__ or "").strip()] == []
