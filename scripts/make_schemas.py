"""Write the JSON Schema of aggregate.json in workflow/schemas/, made from its types."""

import json
from typing import Any

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate.schema import aggregate_schema
from connector_tax.base.door import run_door
from connector_tax.base.files import write_text_if_changed

SCHEMAS = PROJECT_ROOT / "workflow" / "schemas"
WIDTH = 120


def shown(value: Any, indent: int = 0, ahead: int = 0) -> str:
    """JSON with one line for what fits on it.

    Args:
        ahead: characters of its key, on the same line.
    """
    line = json.dumps(value, ensure_ascii=False)
    if indent + ahead + len(line) < WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + 2
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {shown(v, inner, len(k) + 4)}" for k, v in value.items()]
    else:
        parts = [shown(v, inner) for v in value]
    body = f",\n{' ' * inner}".join(parts)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{' ' * inner}{body}\n{' ' * indent}{last}"


def main() -> None:
    path = SCHEMAS / "aggregate.schema.json"
    if write_text_if_changed(path, shown(aggregate_schema()) + "\n"):
        print(f"wrote {path}")


if __name__ == "__main__":
    run_door(main)
