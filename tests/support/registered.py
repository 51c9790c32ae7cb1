"""The families that the bundled ReasoningGYM registers, read from its source without running it."""

import ast
import zipfile

from sapo_verification.tasks.bundled import WHEEL


def registered() -> dict[str, str]:
    """Return the module below ``reasoning_gym`` that registers a family, by the family's name."""
    found = {}
    with zipfile.ZipFile(WHEEL) as wheel:
        for path in wheel.namelist():
            if path.startswith("reasoning_gym/") and path.endswith(".py"):
                module = path.removeprefix("reasoning_gym/").removesuffix(".py").replace("/", ".")
                found.update(dict.fromkeys(_names(ast.parse(wheel.read(path))), module))
    return found


def _names(tree: ast.Module) -> list[str]:
    """Return the first arguments of all calls of ``register_dataset``; some are constants of the module."""
    constants = {
        ast.unparse(statement.targets[0]): ast.literal_eval(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call.args[0] for call in calls if ast.unparse(call.func) == "register_dataset"]
    return [constants[name.id] if isinstance(name, ast.Name) else ast.literal_eval(name) for name in named]
