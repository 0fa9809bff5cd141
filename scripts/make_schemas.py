"""Write workflow/schemas/aggregate.schema.json, made from the types of aggregate.json."""

import json
from typing import Any

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate.schema import aggregate_schema
from connector_tax.base.door import run_door
from connector_tax.base.files import write_text_if_changed

SCHEMA = PROJECT_ROOT / "workflow" / "schemas" / "aggregate.schema.json"
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
    if write_text_if_changed(SCHEMA, shown(aggregate_schema()) + "\n"):
        print(f"wrote {SCHEMA}")


if __name__ == "__main__":
    run_door(main)
