"""The mutants of small sources, each compared as a whole."""

import pytest
from mutation.operators import mutants_of

CASES = {
    "if a < b:\n    raise E\n": {
        "module:comparison:1": "if a <= b:\n    raise E\n",
        "module:condition:1": "if not (a < b):\n    raise E\n",
        "module:guard:1": "if False:\n    raise E\n",
    },
    "def f(x: int = 3) -> int:\n    return x + 1\n": {
        "f:constant:1": "def f(x: int = 4) -> int:\n    return x + 1\n",
        "f:constant:2": "def f(x: int = 3) -> int:\n    return x + 2\n",
        "f:arithmetic:1": "def f(x: int = 3) -> int:\n    return x - 1\n",
    },
    "def f():\n    require(a)\n    if not b:\n        return\n": {
        "f:statement:1": "def f():\n    pass\n    if not b:\n        return\n",
        "f:guard:1": "def f():\n    require(a)\n    if False:\n        return\n",
        "f:order:1": "def f():\n    if not b:\n        return\n    require(a)\n",
        "f:condition:1": "def f():\n    require(a)\n    if not (not b):\n        return\n",
        "f:negation:1": "def f():\n    require(a)\n    if b:\n        return\n",
    },
    "class A:\n    é = 'é', min(a, b) or all(c for c in d if c)\n": {
        "A:connective:1": "class A:\n    é = 'é', min(a, b) and all(c for c in d if c)\n",
        "A:call:1": "class A:\n    é = 'é', max(a, b) or all(c for c in d if c)\n",
        "A:call:2": "class A:\n    é = 'é', min(a, b) or any(c for c in d if c)\n",
        "A:filter:1": "class A:\n    é = 'é', min(a, b) or all(c for c in d if True)\n",
    },
    "if TYPE_CHECKING:\n    x = 1\nassert y > 2\n_LOG.info(1)\n": {
        "module:constant:1": "if TYPE_CHECKING:\n    x = 1\nassert y > 2\n_LOG.info(2)\n",
    },
}


@pytest.mark.parametrize("source", CASES)
def test_each_rule_is_broken_once(source: str) -> None:
    assert {mutant.id: mutant.source for mutant in mutants_of("m.py", source)} == CASES[source]


def test_a_mutant_states_its_location() -> None:
    [found] = mutants_of("m.py", "def f(a):\n    return (\n        a\n        < b\n    )\n")
    assert (found.line, found.last_line, found.original.split(), found.is_at_import) == (3, 4, ["<"], False)
