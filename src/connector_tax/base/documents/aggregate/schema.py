"""JSON Schema of ``aggregate.json`` as this version writes it, made from its types.

A type says what may be read, a campaign cut short among it. The schema says what is written, so every key that is always there is
required and no other is known. What hangs on the value of another key stands in ``_RULES``.
"""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import msgspec

from connector_tax.base.documents.aggregate.cells import MeasuredCell, NoSteps, Steps
from connector_tax.base.documents.aggregate.document import SCHEMA_VERSION, Aggregate, VirtualGpu

Schema = dict[str, Any]
# Those after the first are reached by a rule alone.
_ROOTS = (Aggregate, MeasuredCell, Steps, NoSteps, VirtualGpu)
# As ``cell.json`` has it; more keys may stand there than are read.
_OPEN = ("VirtualGpu",)


def aggregate_schema() -> Schema:
    """As ``workflow/schemas/aggregate.schema.json`` has it."""
    parts = parts_of(_ROOTS)
    for name, rule in _RULES.items():
        _lay(parts[name], rule)
    parts["Aggregate"]["properties"]["cells"]["items"] = _either("usable", "MeasuredCell", "Cell")
    parts["MeasuredCell"]["properties"]["step"] = _either("available", "Steps", "NoSteps")
    del parts["StepRecords"]  # what these two have in common
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:connector-tax:aggregate:{SCHEMA_VERSION}",
        "title": "connector-tax aggregate",
        "description": (
            "aggregate.json of one campaign: every number with its interval. Definitions: docs/measurement.md; "
            "what may change under one schema_version: docs/formats.md."
        ),
    }
    return {**head, **parts.pop("Aggregate"), "$defs": parts}


def parts_of(roots: tuple[type, ...]) -> dict[str, Schema]:
    """The types that the roots are made of as they are written, by name."""
    _, parts = msgspec.json.schema_components(roots)
    classes = {cls.__name__: cls for cls in _structs(roots)}
    # Typed dictionaries are beside them.
    return {
        name: _as_written(classes[name], part) if name in classes else _closed(part)
        for name, part in parts.items()
    }


def _structs(roots: tuple[type, ...]) -> Iterator[type]:
    """Every struct that the roots are made of, once."""
    seen: set[type] = set()
    rest: list[Any] = [*reversed(msgspec.inspect.multi_type_info(roots))]
    while rest:
        node = rest.pop()
        if isinstance(node, tuple):
            rest += reversed(node)
        elif isinstance(node, msgspec.Struct):
            if isinstance(node, msgspec.inspect.StructType):
                if node.cls in seen:
                    continue
                seen.add(node.cls)
                yield node.cls
            rest += [getattr(node, name) for name in reversed(node.__struct_fields__)]


def _as_written(cls: Any, found: Schema) -> Schema:
    """One struct: closed, with the keys that are always written, and its docstring by key."""
    about, by_key = _docstring(found.pop("description", ""))
    fields = {f.encode_name: f for f in msgspec.structs.fields(cls)}
    properties = {}
    for name, value in found["properties"].items():
        properties[name] = _with_names(fields[name].type, _plain(value))
        if cls.__struct_config__.omit_defaults and fields[name].default is None:
            properties[name] = _never_null(properties[name])
        if name in by_key:
            properties[name] = {"description": by_key[name], **properties[name]}
    optional = {n for n, f in fields.items() if _may_be_absent(cls, f)}
    return {
        **({"description": about} if about else {}),
        "type": "object",
        **({} if cls.__name__ in _OPEN else {"additionalProperties": False}),
        "required": [name for name in properties if name not in optional],
        "properties": properties,
    }


def _closed(found: Schema) -> Schema:
    return {**_plain(found), "additionalProperties": False}


def _may_be_absent(cls: Any, field: msgspec.structs.FieldInfo) -> bool:
    return field.default is msgspec.UNSET or (cls.__struct_config__.omit_defaults and not field.required)


def _plain(value: Any) -> Any:
    """Without defaults, which are for readers, and with ``const`` for an enumeration of one."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    kept = {k: _plain(v) for k, v in value.items() if k not in ("default", "title")}
    if len(kept.get("enum", ())) == 1:
        kept["const"] = kept.pop("enum")[0]
    match kept:
        case {"anyOf": [{"type": str(kind), **rest}, {"type": "null"}]} if "enum" not in rest:
            # The other words about it say nothing of a null.
            return {"type": [kind, "null"], **rest}
    return kept


def _with_names(annotation: Any, value: Schema) -> Schema:
    """With the words that may be keys, where the type lists them: msgspec leaves them out."""
    kind = msgspec.inspect.type_info(annotation)
    if isinstance(kind, msgspec.inspect.DictType) and isinstance(kind.key_type, msgspec.inspect.LiteralType):
        return {**value, "propertyNames": {"enum": list(kind.key_type.values)}}
    return value


def _never_null(value: Schema) -> Schema:
    """Of a key that is left out where it would be null."""
    if isinstance(kind := value.get("type"), list):
        return {**value, "type": kind[0]}
    if "anyOf" not in value:
        return value
    kinds = [kind for kind in value["anyOf"] if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {**value, "anyOf": kinds}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """What it says of the whole, and of each key under ``Attributes``."""
    about, _, attributes = cleandoc(text).partition("Attributes:\n")
    entries: list[str] = []
    for line in attributes.splitlines():
        # Lines that go on with an entry stand further in than those that begin one.
        if line.startswith("     "):
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    by_key = {}
    for entry in entries:
        names, _, words = entry.partition(": ")
        by_key.update(dict.fromkeys(names.split(", "), words))
    return " ".join(about.split()), by_key


def _lay(under: Schema, rule: Schema) -> None:
    """Put a rule's keys into a schema; those of both go into one another."""
    for key, value in rule.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            _lay(under[key], value)
        else:
            under[key] = value


def _is(**values: Any) -> Schema:
    return {"properties": {name: {"const": value} for name, value in values.items()}}


def _of(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _either(key: str, if_true: str, if_false: str) -> Schema:
    """Of two types, the one that a key says."""
    choice = {"if": _is(**{key: True}), "then": _of(if_true), "else": _of(if_false)}
    return {"type": "object", "required": [key], **choice}


_NUMBER, _STRING, _NULL = {"type": "number"}, {"type": "string"}, {"type": "null"}
# Wherever one of the three is null, the reason says why.
_REASONED = {
    "anyOf": [
        {"required": ["reason"]},
        {"properties": {"point": _NUMBER, "low": _NUMBER, "high": _NUMBER}},
    ],
    "properties": {"reason": {"minLength": 1}},
}
_TAX = {
    "allOf": [
        {
            "if": _is(verdict="unavailable"),
            "then": {"properties": {"point": _NULL, "low": _NULL, "high": _NULL, "reason": _STRING}},
            "else": {"properties": {"point": _NUMBER}},
        },
        {
            "if": _is(n_blocks=1),
            "then": {"properties": {"phase": _STRING}},
            "else": {"properties": {"phase": _NULL}},
        },
    ]
}
# What each verdict rests on, and nothing else.
_NUMBERS = {
    "H1": ("tax_ttft_p90", "threshold"),
    "H2": ("gap", "range"),
    "H3": ("tax_noop", "tax_connector", "share", "threshold"),
    "H4": ("tax_stack", "sum_of_parts", "excess_over_stack", "parts", "tolerance"),
    "H5": ("slope_per_doubling", "by_length", "rates_per_s", "averaged_over", "left_out"),
    "H6": ("slope_per_doubling", "by_length", "rates_per_s", "averaged_over", "left_out"),
}
_NUMBERS_BY_ID = [
    {
        "if": _is(id=name),
        "then": {
            "properties": {
                "numbers": {"required": list(keys), "propertyNames": {"enum": [*keys, "queueing"]}}
            }
        },
    }
    for name, keys in _NUMBERS.items()
]
_RULES: dict[str, Schema] = {
    "Provenance": {"properties": {"virtual_gpu": _of("VirtualGpu")}},
    "Cell": _is(usable=False),
    "MeasuredCell": {
        "properties": {
            "usable": {"const": True},
            "verdict": {"const": "valid"},
        },
        # Growth is asked of Phase A alone.
        "if": _is(phase="a"),
        "then": {"properties": {"saturation_criteria": {"required": ["ttft_growth"]}}},
        "else": {"properties": {"saturation_criteria": {"not": {"required": ["ttft_growth"]}}}},
    },
    # A file of reference rates may lack them; the analysis writes all.
    "ShapeRate": {
        "required": ["rate_per_s", "plain_use", "plain_use_at_reference", "not_held_by", "known_from"]
    },
    "Steps": _is(available=True),
    "NoSteps": _is(available=False),
    "Quantity": _REASONED,
    "TaxPart": _REASONED,
    "AttributionPart": _REASONED,
    "Amplification": _REASONED,
    "TaxRow": _TAX,
    "Hypothesis": {
        "if": _is(outcome="not testable"),
        "then": {"properties": {"numbers": {"maxProperties": 0}}},
        "else": {"allOf": _NUMBERS_BY_ID},
    },
}
