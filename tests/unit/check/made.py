"""Requests for checks whose engines are never launched."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from virtual_gpus import model_in

from connector_tax.check.request import GIVEN, CheckRequest, entry_of_json

__all__ = ["NOOP", "model_in", "request"]

NOOP = '{"kv_connector": "NoOpConnector", "kv_role": "kv_both", "kv_connector_module_path": "noop_connector"}'


def request(folder: Path, text: str = NOOP, **changes: Any) -> CheckRequest:
    entry, notes = entry_of_json(text)
    model = model_in(folder / "model")
    return CheckRequest(GIVEN, entry, notes, "/bin/true", "h200", "Qwen", model, **changes)
