"""What a walk through a source knows: objects by their methods' source, values, and the names in a call.

See ``source_walk``.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = object()
SOMETHING = object()  # a value known to be not None, and no more


class CannotRead(Exception):
    """The source has a shape that this reader does not follow; the text says where."""


@dataclass(frozen=True)
class Place:
    """A call that was looked for.

    Attributes:
        name: as the reader of the order knows it (``pre_forward``, ``forward``, ``wait_for_save``).
        inside: the touch point of the model runner within which it was called; None in the runner itself.
    """

    name: str
    inside: str | None


@dataclass(frozen=True, eq=False)
class Thing:
    """What stands for an object while walking.

    Attributes:
        methods: their source, by name.
        parts: attributes that are things themselves.
        touch_points: methods that are looked for when the model runner calls them; they are walked too.
        is_connector: every method called on it is looked for, and none is walked.
    """

    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    parts: Mapping[str, "Thing"] = field(default_factory=dict)
    touch_points: frozenset[str] = frozenset()
    is_connector: bool = False


def bound(function: ast.FunctionDef, positional: list[Any], named: dict[str | None, Any]) -> dict[str, Any]:
    """Parameters by name; what is passed by ``*`` or ``**`` is unknown."""
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args]
    if names[:1] == ["self"]:
        names = names[1:]
    bound: dict[str, Any] = dict.fromkeys(names, UNKNOWN)
    for name, default in zip(reversed(names), reversed(arguments.defaults), strict=False):
        bound[name] = default.value if isinstance(default, ast.Constant) else UNKNOWN
    if None in named:
        bound = dict.fromkeys(bound, UNKNOWN)
    bound |= dict(zip(names, positional, strict=False))
    bound |= {name: value for name, value in named.items() if name is not None}
    if arguments.kwarg:
        bound[arguments.kwarg.arg] = SOMETHING
    return bound


def makes_context(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(d).split(".")[-1] == "contextmanager" for d in function.decorator_list)


def truth(value: Any) -> bool | None:
    return None if value is UNKNOWN or value is SOMETHING else bool(value)


def text_of(node: ast.AST) -> str:
    """Its source text, put together once."""
    text: str | None = getattr(node, "_text", None)
    if text is None:
        text = ast.unparse(node)
        node._text = text  # type: ignore[attr-defined]
    return text


def mentions(node: ast.AST, words: Iterable[str]) -> bool:
    text = text_of(node)
    return any(word in text for word in words)


def within_reach(
    methods: Mapping[str, ast.FunctionDef], words: Iterable[str]
) -> tuple[dict[str, ast.FunctionDef], frozenset[str]]:
    """The methods in which one of the words stands, or a call of such a method; and the words with those calls."""
    reached: dict[str, ast.FunctionDef] = {}
    wanted = frozenset(words)
    while True:
        more = {n: f for n, f in methods.items() if n not in reached and mentions(f, wanted)}
        if not more:
            return reached, wanted
        reached |= more
        wanted |= {f"self.{name}(" for name in more}
