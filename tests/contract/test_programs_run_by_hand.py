"""Programs and tests that are run by hand, or where an engine, containers or a cluster are, take nothing that is not there any more."""

import ast
import symtable
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"
BY_HAND = sorted(
    f for folder in ("perf", "soak", "vllm", "container", "slurm") for f in (TESTS / folder).rglob("*.py")
)


def module_file(name: str, importer: Path) -> Path | None:
    """Of this project's package, or of the tests' own modules; None where it is neither."""
    for folder in (SOURCE, TESTS, importer.parent):
        place = folder.joinpath(*name.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


@cache
def names_of(module: Path) -> frozenset[str]:
    """What the module binds, and the modules beside it where it is a package's."""
    bound = symtable.symtable(module.read_text(), str(module), "exec").get_symbols()
    beside = [file.stem for file in module.parent.iterdir()] if module.name == "__init__.py" else []
    return frozenset([*(s.get_name() for s in bound if s.is_assigned() or s.is_imported()), *beside])


@pytest.mark.parametrize("program", BY_HAND, ids=lambda path: str(path.relative_to(TESTS)))
def test_what_a_program_imports_is_there(program: Path) -> None:
    tree = ast.parse(program.read_text())
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        module = module_file(node.module, program)
        if module is None:
            assert not node.module.startswith("connector_tax"), f"there is no module {node.module}"
            continue
        assert {alias.name for alias in node.names} <= names_of(module), f"line {node.lineno}: {node.module}"
