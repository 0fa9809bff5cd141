"""JSON Schema of ``aggregate.json`` as this version writes it, made by msgspec from its types.

A type says what may be read, a campaign cut short among it. The schema says what is written, so every key that is always there is
required and no other is known.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from connector_tax.base.documents.aggregate.cells import MeasuredCell, NoSteps, Steps
from connector_tax.base.documents.aggregate.document import SCHEMA_VERSION, Aggregate

Schema = dict[str, Any]
# Those after the first are named by a key of another type and by no annotation.
_ROOTS = (Aggregate, MeasuredCell, Steps, NoSteps)


def aggregate_schema() -> Schema:
    """Return what ``workflow/schemas/aggregate.schema.json`` holds."""
    _, parts = msgspec.json.schema_components(_ROOTS)
    classes = {cls.__name__: cls for cls in _structs(_ROOTS)}
    for name, part in parts.items():
        part["additionalProperties"] = False
        if cls := classes.get(name):  # a typed dictionary says by itself which keys it has
            part["required"] = [f.encode_name for f in msgspec.structs.fields(cls) if _is_written(cls, f)]
    for name, key, usable in (
        ("Cell", "usable", False),
        ("MeasuredCell", "usable", True),
        ("NoSteps", "available", False),
        ("Steps", "available", True),
    ):
        parts[name]["properties"][key] = {"const": usable}
    parts["Aggregate"]["properties"]["cells"]["items"] = _one_of("MeasuredCell", "Cell")
    parts["MeasuredCell"]["properties"]["step"] = _one_of("Steps", "NoSteps")
    del parts["StepRecords"]  # what these two have in common
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:connector-tax:aggregate:{SCHEMA_VERSION}",
        "title": "connector-tax aggregate",
    }
    return {**head, **parts.pop("Aggregate"), "$defs": parts}


def _structs(roots: tuple[type, ...]) -> Iterator[type]:
    """Yield every struct that the roots are made of, once."""
    seen: set[type] = set()
    rest: list[Any] = [*msgspec.inspect.multi_type_info(roots)]
    while rest:
        node = rest.pop()
        if isinstance(node, tuple):
            rest += node
        elif isinstance(node, msgspec.Struct):
            if isinstance(node, msgspec.inspect.StructType):
                if node.cls in seen:
                    continue
                seen.add(node.cls)
                yield node.cls
            rest += [getattr(node, name) for name in node.__struct_fields__]


def _is_written(cls: Any, field: msgspec.structs.FieldInfo) -> bool:
    """Return whether a key is there in every document, also with its default."""
    return field.default is not msgspec.UNSET and (field.required or not cls.__struct_config__.omit_defaults)


def _one_of(*names: str) -> Schema:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
