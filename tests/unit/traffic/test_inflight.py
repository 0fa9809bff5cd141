"""Which arrivals are dropped: one rule for what is measured and for what is rehearsed."""

import ast
from pathlib import Path

import connector_tax
from connector_tax.run.workload.protocol import may_send

PACKAGE = Path(connector_tax.__file__).parent


def test_an_arrival_is_dropped_once_the_cap_is_reached() -> None:
    assert [may_send(inflight, cap=2) for inflight in (0, 1, 2, 3)] == [True, True, False, False]


def test_the_cap_is_compared_with_nowhere_else() -> None:
    """Two copies of the rule could drift apart, and a rehearsal would drop other requests than the cell it stands for."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Attribute) and part.attr == "inflight_cap" for part in ast.walk(node))
    ]
    assert found == []
