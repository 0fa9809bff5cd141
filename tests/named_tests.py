"""Checks that tests which a table names by file, or by file and function, exist."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lacking(test_id: str) -> str | None:
    """Return what is wrong with ``tests/.../test_x.py`` or ``tests/.../test_x.py::test_y``, or None."""
    file, _, function = test_id.partition("::")
    if not (ROOT / file).is_file():
        return f"no such test: {test_id}"
    if function and function not in functions_of(ROOT / file):
        return f"no such test: {test_id}"
    return None


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
