"""``python noop_check.py VLLM_PY_FOLDER``: does the no-op connector load under this release?

Everything that the release's connector base class imports is replaced by stand-ins, so no vLLM has to be installed: the
base class itself is the release's own, its abstract methods and its constructor included. Prints one JSON object.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
PLUGIN = Path(__file__).parents[2] / "launch" / "plugins" / "noop_connector.py"


class _StandIn(ModuleType):
    """A module in which every name is something that can be called, subscripted and decorated with."""

    def __getattr__(self, name: str) -> MagicMock:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds vLLM's and torch's modules, all as stand-ins but the base class's own."""

    def __init__(self, vllm: Path) -> None:
        self._base = vllm / "distributed/kv_transfer/kv_connector/v1/base.py"

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == BASE:
            return importlib.util.spec_from_file_location(name, self._base)
        if name.partition(".")[0] in ("vllm", "torch", "prometheus_client"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def check(vllm: Path) -> dict[str, object]:
    """What came of loading and calling the connector; ``reason`` is None where all went well."""
    sys.meta_path.insert(0, _StandIns(vllm))
    base = importlib.import_module(BASE)
    spec = importlib.util.spec_from_file_location("noop_connector", PLUGIN)
    assert spec is not None and spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    cls = plugin.NoOpConnector
    missing = sorted(cls.__abstractmethods__)
    if missing:
        return {"loads": False, "reason": f"abstract: {', '.join(missing)}"}
    connector = cls(MagicMock(), base.KVConnectorRole.WORKER, MagicMock())
    answers = (
        connector.get_num_new_matched_tokens(None, 0) == (0, False)
        and isinstance(connector.build_connector_meta(None), base.KVConnectorMetadata)
        and connector.request_finished(None, []) == (False, None)
        and connector.request_finished_all_groups(None, ()) == (False, None)
        and connector.get_finished(set()) == (None, None)
    )
    hma = not hasattr(base, "SupportsHMA") or issubclass(cls, base.SupportsHMA)
    reason = (
        None if answers and hma else "a hook answers otherwise" if hma else "SupportsHMA is not inherited"
    )
    return {"loads": True, "reason": reason}


if __name__ == "__main__":
    print(json.dumps(check(Path(sys.argv[1]))))
