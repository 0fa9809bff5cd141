"""JSON Schemas of what is read and written, from types and their docstrings."""

import json
import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec.inspect import StructType, multi_type_info

# An innermost mapping or list, which is put on one line.
INNERMOST = re.compile(r"([{\[])\n\s*([^{}\[\]]*?)\n\s*([}\]])")


def schema_of(*kinds: Any, written: bool) -> Any:
    """Return the JSON Schema of the first of ``kinds``, with the docstrings of its structs by key.

    Args:
        kinds: the type, and types that it does not name.
        written: for a document of ours: keys that are always there are required, others are refused.
            Otherwise the schema says what may be read.
    """
    (top, *_), parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for cls in structs_of(multi_type_info(kinds), set()):
        part = parts[cls.__name__]
        part["description"], _ = docstring(cls)
        about = {name: words for base in cls.__mro__ for name, words in docstring(base)[1].items()}
        fields = msgspec.structs.fields(cls)
        for field in fields:
            if field.name in about:
                part["properties"][field.encode_name]["description"] = about[field.name]
        if written:
            left_out = cls.__struct_config__.omit_defaults
            part["required"] = [
                f.encode_name
                for f in fields
                if f.default is not msgspec.UNSET and (f.required or not left_out)
            ]
    for part in parts.values() if written else ():
        part["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": parts}


def structs_of(node: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield every struct in a type, once."""
    if isinstance(node, StructType):
        if node.cls in seen:
            return
        seen.add(node.cls)
        yield node.cls
    inner = (getattr(node, name) for name in getattr(node, "__struct_fields__", ()))
    for part in node if isinstance(node, list | tuple) else inner:
        yield from structs_of(part, seen)


def docstring(cls: Any) -> tuple[str, dict[str, str]]:
    """Return the description of a type, and of each key under ``Attributes``."""
    about, _, attributes = cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    # Continuation lines are indented further than the first line of an entry.
    entries = attributes.replace("\n        ", " ").split("\n")
    by_key = {}
    for names, _, words in (entry.strip().partition(": ") for entry in entries):
        by_key.update(dict.fromkeys(names.split(", "), words))
    return " ".join(about.split()), by_key


def text_of(schema: Any) -> str:
    """Return the content of a file in ``workflow/schemas``."""
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    text = INNERMOST.sub(lambda m: m[1] + re.sub(r"\n\s*", " ", m[2]) + m[3], text)
    # Editors read patterns with JavaScript, which has no \Z.
    return text.replace(r"\\Z", "$") + "\n"
