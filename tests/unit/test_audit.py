"""``.ci/audit.py``: a package that nobody could be asked about is no clean package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "audit.py"


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit_under_test", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "audit_under_test", module)
    spec.loader.exec_module(module)
    return module


ASKED = {"name": "anyio", "version": "4.16.0", "vulns": []}
UNKNOWN = {"name": "arch", "skip_reason": "not found"}
BROKEN = {"name": "httpx", "version": "1.0", "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["1.1"]}]}


def test_all_that_was_asked_is_clean(audit: ModuleType) -> None:
    found = audit.Audit.of({"dependencies": [ASKED]})
    assert found.told() == "audit: 1 of 1 packages looked up, 0 with a known vulnerability"
    assert (found.exit_code(strict=False), found.exit_code(strict=True)) == (0, 0)


def test_an_index_that_knows_nothing_is_named_and_fails_a_strict_audit(audit: ModuleType) -> None:
    found = audit.Audit.of({"dependencies": [ASKED, UNKNOWN]})
    assert "1 of 2 packages looked up" in found.told()
    assert "not looked up: 1, such as arch: not found" in found.told()
    assert (found.exit_code(strict=False), found.exit_code(strict=True)) == (0, 2)


def test_a_known_vulnerability_fails_and_says_what_mends_it(audit: ModuleType) -> None:
    found = audit.Audit.of({"dependencies": [BROKEN, UNKNOWN]})
    assert "httpx 1.0: PYSEC-2026-1, mended in 1.1" in found.told()
    assert (found.exit_code(strict=False), found.exit_code(strict=True)) == (1, 1)
