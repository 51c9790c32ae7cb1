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
        "A:argument:1": "class A:\n    é = 'é', min(b, a) or all(c for c in d if c)\n",
        "A:call:2": "class A:\n    é = 'é', min(a, b) or any(c for c in d if c)\n",
        "A:filter:1": "class A:\n    é = 'é', min(a, b) or all(c for c in d if True)\n",
    },
    "def f():\n    check(a)\n    self.b = c\n": {
        "f:statement:1": "def f():\n    pass\n    self.b = c\n",
        "f:sequence:1": "def f():\n    self.b = c\n    check(a)\n",
        "f:write:1": "def f():\n    check(a)\n    pass\n",
    },
    "try:\n    x = Reason.A\nexcept E:\n    x = Reason.B\nfinally:\n    y = 0\n    del z\n": {
        "module:finally:1": "try:\n    x = Reason.A\nexcept E:\n    x = Reason.B\nfinally:\n    pass\n",
        "module:member:1": (
            "try:\n    x = Reason.B\nexcept E:\n    x = Reason.B\nfinally:\n    y = 0\n    del z\n"
        ),
        "module:handler:1": (
            "try:\n    x = Reason.A\nexcept ():\n    x = Reason.B\nfinally:\n    y = 0\n    del z\n"
        ),
        "module:member:2": (
            "try:\n    x = Reason.A\nexcept E:\n    x = Reason.A\nfinally:\n    y = 0\n    del z\n"
        ),
        "module:constant:1": (
            "try:\n    x = Reason.A\nexcept E:\n    x = Reason.B\nfinally:\n    y = 1\n    del z\n"
        ),
    },
    "with lock, open(a) as f:\n    x = f\n": {
        "module:context:1": 'with __import__("contextlib").nullcontext(), open(a) as f:\n    x = f\n',
    },
    "if TYPE_CHECKING:\n    x = 1\nassert y > 2\n_LOG.info(1)\n": {
        "module:constant:1": "if TYPE_CHECKING:\n    x = 1\nassert y > 2\n_LOG.info(2)\n",
    },
    "s.a -= -b / 0.5\ndel s.c[d]\n": {
        "module:write:1": "pass\ndel s.c[d]\n",
        "module:write:2": "s.a -= -b / 0.5\npass\n",
        "module:division:1": "s.a -= -b * 0.5\ndel s.c[d]\n",
        "module:sign:1": "s.a -= (b) / 0.5\ndel s.c[d]\n",
        "module:number:1": "s.a -= -b / 1.0\ndel s.c[d]\n",
    },
    "try:\n    x = a.detach().clamp_min(c)\nfinally:\n    close()\n": {
        "module:finally:1": "try:\n    x = a.detach().clamp_min(c)\nfinally:\n    pass\n",
        "module:method:1": "try:\n    x = a.detach().clamp_max(c)\nfinally:\n    close()\n",
        "module:detached:1": "try:\n    x = a.clamp_min(c)\nfinally:\n    close()\n",
    },
}


@pytest.mark.parametrize("source", CASES)
def test_each_rule_is_broken_once(source: str) -> None:
    assert {mutant.id: mutant.source for mutant in mutants_of("m.py", source)} == CASES[source]


def test_a_mutant_states_its_location() -> None:
    [found] = mutants_of("m.py", "def f(a):\n    return (\n        a\n        < b\n    )\n")
    assert (found.line, found.last_line, found.original.split(), found.is_at_import) == (3, 4, ["<"], False)
