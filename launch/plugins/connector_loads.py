"""Checks in the engine's own Python whether vLLM and connectors load. Needs nothing of this project.

``python -m connector_loads '[{"connectors": [...], "packages": [...]}, ...]'`` prints one line of JSON: the
CUDA version that torch was built for, and for each entry the first fault, cheapest check first, or null.
"""

import importlib
import importlib.util
import json
import runpy
import sys
from pathlib import Path

# Marks the line of the answer: imported modules may print, too.
ANSWER = "connector-tax-loads:"


def first_fault(connectors: list, packages: list) -> dict | None:
    for code, name in [("no_vllm", "vllm"), *(("no_package", p) for p in packages)]:
        if not _is_there(name):
            return _fault(code, name)
    for connector in connectors:
        path = connector.get("kv_connector_module_path")
        if path and not _is_there(path):
            return _fault("no_module", path, connector)
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what a person has to see
        return _fault("broken", "vllm", said=error)
    for connector in connectors:
        fault = _class_fault(connector, KVConnectorFactory._registry)
        if fault is not None:
            return fault
    for package in packages:
        # A connector's class may not import the package; its native parts are loaded here.
        try:
            importlib.import_module(package)
        except Exception as error:  # noqa: BLE001 - likewise
            return _fault("broken", package, said=error)
    return None


def _class_fault(connector: dict, registry: dict) -> dict | None:
    """Import a connector's class as vLLM does; return its fault, or None."""
    name, path = str(connector["kv_connector"]), connector.get("kv_connector_module_path")
    if not path and name not in registry:
        return _fault("unknown_class", name, connector, ", ".join(sorted(registry)))
    try:
        found = getattr(importlib.import_module(path), name, None) if path else registry[name]()
    except ModuleNotFoundError as error:
        return _fault("no_package", (error.name or str(error)).partition(".")[0], connector, error)
    except Exception as error:  # noqa: BLE001 - likewise
        return _fault("broken", path or name, connector, error)
    if not isinstance(found, type):
        return _fault("no_class", name, connector, path)
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    return _fault("abstract", name, connector, ", ".join(missing)) if missing else None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        # A missing parent means that the module is missing. If an existing parent lacks a dependency, its
        # import reports that later.
        return not f"{module}.".startswith(f"{error.name}.")
    except Exception:  # noqa: BLE001 - its import, which comes later, says what is wrong with it
        return True


def _fault(code: str, subject: str, connector: "dict | None" = None, said: object = "") -> dict:
    words = f"{type(said).__name__}: {said}" if isinstance(said, Exception) else str(said)
    return {
        "code": code,
        "subject": subject,
        "connector": (connector or {}).get("kv_connector", ""),
        "said": words,
    }


def built_for() -> "str | None":
    """Return torch's CUDA version without importing torch."""
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.origin:
        return None
    return runpy.run_path(str(Path(torch.origin).with_name("version.py"))).get("cuda")


if __name__ == "__main__":
    faults = [first_fault(**one) for one in json.loads(sys.argv[1])]
    print(f"\n{ANSWER}{json.dumps({'cuda': built_for(), 'faults': faults})}")
