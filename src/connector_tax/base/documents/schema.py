"""JSON Schemas of what is read and written, made from the types with their docstrings."""

import json
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import msgspec

WIDTH = 120


def schema_of(*kinds: Any, written: bool) -> Any:
    """JSON Schema of the first of ``kinds``, with the docstrings of its structs by key.

    Args:
        kinds: and those that its types do not name.
        written: it is a document of ours: a key that is always there is required, and no other is known. A type says what may be read.
    """
    (top, *_), parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for cls in structs_of(msgspec.inspect.multi_type_info(kinds)):
        part = parts[cls.__name__]
        part["description"], _ = docstring(cls)
        about = {name: words for base in cls.__mro__ for name, words in docstring(base)[1].items()}
        for field in msgspec.structs.fields(cls):
            own = part["properties"][field.encode_name]
            if field.name in about:
                own["description"] = about[field.name]
            if written and (names := key_names(field.type)):
                own["propertyNames"] = {"enum": names}
        if written:
            left_out = cls.__struct_config__.omit_defaults
            part["required"] = [
                f.encode_name
                for f in msgspec.structs.fields(cls)
                if f.default is not msgspec.UNSET and (f.required or not left_out)
            ]
    for part in parts.values() if written else ():
        part["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": parts}


def structs_of(node: Any, seen: set[Any] | None = None) -> Iterator[Any]:
    """Every struct that a type is made of, once."""
    seen = set() if seen is None else seen
    for inner in node if isinstance(node, list | tuple) else ():
        yield from structs_of(inner, seen)
    if not isinstance(node, msgspec.Struct):
        return
    cls = getattr(node, "cls", None)
    if cls not in seen:
        if isinstance(node, msgspec.inspect.StructType):
            seen.add(cls)
            yield cls
        for name in node.__struct_fields__:
            yield from structs_of(getattr(node, name), seen)


def key_names(kind: Any) -> list[Any]:
    """The words that may be keys, where a type lists them: msgspec leaves them out."""
    found = msgspec.inspect.type_info(kind)
    if isinstance(found, msgspec.inspect.DictType) and isinstance(
        found.key_type, msgspec.inspect.LiteralType
    ):
        return list(found.key_type.values)
    return []


def docstring(cls: Any) -> tuple[str, dict[str, str]]:
    """What it says of the whole, and of each key under ``Attributes``."""
    about, _, attributes = cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    # Lines that go on with an entry stand further in than those that begin one.
    entries = attributes.replace("\n        ", " ").split("\n")
    by_key = {}
    for names, _, words in (entry.strip().partition(": ") for entry in entries):
        by_key.update(dict.fromkeys(names.split(", "), words))
    return " ".join(about.split()), by_key


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
