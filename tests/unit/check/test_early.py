"""What a connector lacks is named before anything is launched, with what to do; the engine's Python is one that a test makes."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made import request

from connector_tax.base.records.connector import ModuleNeed
from connector_tax.check.campaign import write_campaign
from connector_tax.check.command import text_of
from connector_tax.check.document import Fault
from connector_tax.check.request import early_fault

FACTORY = """
def needs_a_package():
    import no_such_package
class MultiConnector: ...
class KVConnectorFactory:
    _registry = {"NeedsOne": needs_a_package, "MultiConnector": lambda: MultiConnector}
"""
OWN = """
import abc
class Good: ...
class Half(abc.ABC):
    @abc.abstractmethod
    def get_finished(self): ...
not_a_class = 1
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A vLLM that has only what is asked of it, and a connector's own module."""
    folder = tmp_path / "packages"
    for path, text in {
        "vllm/__init__.py": "",
        "vllm/distributed/kv_transfer/kv_connector/factory.py": FACTORY,
        "own.py": OWN,
        "breaks.py": "raise RuntimeError('no device')",
        "lacks.py": "import absent.part",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def connector(name: str, path: str | None = None, **more: Any) -> dict[str, Any]:
    own = {} if path is None else {"kv_connector_module_path": path}
    return {"kv_connector": name, "kv_role": "kv_both", **own, **more}


def stack(*children: dict[str, Any]) -> dict[str, Any]:
    return connector("MultiConnector", kv_connector_extra_config={"connectors": list(children)})


def asked(folder: Path, config: dict[str, Any], packages: Path | None, **changes: Any) -> Fault | None:
    env = {} if packages is None else {"PYTHONPATH": str(packages)}
    asking = request(folder, engine_python=sys.executable, env=env, **changes)
    entry = msgspec.structs.replace(asking.entry, kv_transfer_config=config)
    asking = replace(asking, entry=entry)
    return early_fault(asking, write_campaign(asking, folder, "early", duration_s=1.0))


@pytest.mark.parametrize(
    ("config", "code", "subject", "words"),
    [
        (connector("Good", "no_such.module"), "no_module", "no_such.module", "--env PYTHONPATH=FOLDER"),
        (connector("Bad", "own"), "no_class", "Bad", "module own has no class Bad"),
        (connector("Half", "own"), "abstract", "Half", "does not implement get_finished"),
        (connector("X", "breaks"), "broken", "breaks", "RuntimeError: no device"),
        (connector("X", "lacks"), "no_package", "absent", "-m pip install absent"),
        (connector("NeedsOne"), "no_package", "no_such_package", "-m pip install no_such_package"),
        (
            stack(connector("Good", "own"), connector("Nixel")),
            "unknown_class",
            "Nixel",
            "Nixel: this vLLM has no",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(
    tmp_path: Path, packages: Path, config: dict[str, Any], code: str, subject: str, words: str
) -> None:
    begun = time.monotonic()
    fault = asked(tmp_path, config, packages)
    assert fault is not None and (fault.code, fault.subject) == (code, subject)
    assert words in text_of("loads", {"fault": fault, "python": sys.executable})
    assert time.monotonic() - begun < 20


def test_a_connector_that_is_there_has_no_fault(tmp_path: Path, packages: Path) -> None:
    assert asked(tmp_path, stack(connector("Good", "own")), packages) is None


def test_a_python_without_vllm_is_blamed_first(tmp_path: Path) -> None:
    fault = asked(tmp_path, connector("Good", "no_such.module"), None)
    assert fault is not None and fault.code == "no_vllm"
    words = text_of("loads", {"fault": fault, "python": "/some/python"})
    assert "/some/python has no vLLM. Give one that has: --engine-python" in words


def test_a_known_connector_says_which_package_it_wants(tmp_path: Path, packages: Path) -> None:
    """vLLM imports NIXL's connector without NIXL, so only the entry tells."""
    text = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
    asking = request(tmp_path, text, engine_python=sys.executable, env={"PYTHONPATH": str(packages)})
    fault = early_fault(asking, write_campaign(asking, tmp_path, "early", duration_s=1.0))
    assert fault is not None and (fault.code, fault.subject) == ("no_package", "nixl")
    assert "python -m pip install" in text_of("loads", {"fault": fault, "python": "python"})


def test_native_parts_that_do_not_load_are_told_before_a_launch(tmp_path: Path, packages: Path) -> None:
    """A class may do without its package until it is made."""
    asking = request(tmp_path, engine_python=sys.executable, env={"PYTHONPATH": str(packages)})
    entry = msgspec.structs.replace(
        asking.entry,
        kv_transfer_config=connector("Good", "own"),
        modules=(ModuleNeed("breaks", "pip install breaks"),),
    )
    asking = replace(asking, entry=entry)
    fault = early_fault(asking, write_campaign(asking, tmp_path, "early", duration_s=1.0))
    assert fault is not None and (fault.code, fault.subject) == ("broken", "breaks")


def test_a_python_that_dies_is_told_as_well(tmp_path: Path, packages: Path) -> None:
    (packages / "own.py").write_text("import os; os._exit(7)")
    fault = asked(tmp_path, connector("Good", "own"), packages)
    assert fault is not None and (fault.code, fault.said) == ("broken", "exit code 7")


def test_what_to_install_is_for_the_cuda_of_the_engine(tmp_path: Path, packages: Path) -> None:
    """Its torch is asked without being loaded: here it would not load."""
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("raise ImportError")
    (packages / "torch" / "version.py").write_text("cuda = '13.0'")
    asking = request(tmp_path, engine_python=sys.executable, env={"PYTHONPATH": str(packages)})
    own = ModuleNeed("absent", "pip install for-any", {"13": "pip install for-13"})
    asking = replace(asking, entry=msgspec.structs.replace(asking.entry, modules=(own,)))
    fault = early_fault(asking, write_campaign(asking, tmp_path, "early", duration_s=1.0))
    assert fault is not None and fault.install == "pip install for-13"
