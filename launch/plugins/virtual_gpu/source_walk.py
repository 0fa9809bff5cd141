"""Walks the source of a method as Python would run it, and writes down the calls that are looked for.

A walk is given facts: source text of conditions and names with the value they have in the case asked about
(``scheduler_output.has_sync_kv_loads``: True). A branch whose condition follows from the facts is taken; one whose
condition is unknown and in whose arms nothing is called that is looked for is stepped over; with such a call in it, both
arms are walked, and the case has several sequences. Nothing is imported or run: the source is read by ``ast``.
"""

import ast
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from virtual_gpu.source_things import (
    SOMETHING,
    UNKNOWN,
    CannotRead,
    Place,
    Thing,
    bound,
    makes_context,
    mentions,
    text_of,
    truth,
)


@dataclass
class _Frame:
    me: Thing | None
    names: dict[str, Any]
    touch: str | None


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Undecided(Exception):
    """A branch with calls that are looked for, whose condition is unknown, and no choice left."""


class Walk:
    """One walk along one choice at each undecided branch."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        marks: Mapping[str, str],
        words: frozenset[str],
        choices: tuple[bool, ...],
    ) -> None:
        self.facts = facts
        self.marks = marks
        self.choices = choices
        self.words = words
        self.made = 0
        self.found: list[Place] = []
        self._attributes: dict[tuple[int, str], Any] = {}
        self._stack: list[str] = []

    def call(self, owner: Thing, method: str) -> None:
        """Walk a method as the engine core calls it."""
        if method not in owner.methods:
            raise CannotRead(f"there is no {method}()")
        self._method(owner, owner.methods[method], [], {}, _Frame(None, {}, None))

    # Statements.

    def body(
        self, statements: list[ast.stmt], frame: _Frame, at_yield: Callable[[], None] | None = None
    ) -> None:
        for statement in statements:
            self._statement(statement, frame, at_yield)

    def _statement(self, node: ast.stmt, frame: _Frame, at_yield: Callable[[], None] | None) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and at_yield:
            at_yield()
        elif isinstance(node, ast.If):
            self._if(node, frame, at_yield)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node.items, node.body, frame, at_yield)
        elif isinstance(node, ast.Try):
            try:
                self.body(node.body + node.orelse, frame, at_yield)
            finally:
                self.body(node.finalbody, frame, at_yield)
        elif isinstance(node, (ast.For, ast.While)):
            self.value(node.iter if isinstance(node, ast.For) else node.test, frame)
            self.body(node.body + node.orelse, frame, at_yield)
        elif isinstance(node, ast.Return):
            raise _Return(self.value(node.value, frame) if node.value else None)
        elif isinstance(node, ast.Raise):
            raise _Return(UNKNOWN)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, frame)
            for target in node.targets:
                self._assign(target, value, frame)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self.value(node.value, frame), frame)
        elif isinstance(node, ast.Expr):
            self.value(node.value, frame)

    def _assign(self, target: ast.expr, value: Any, frame: _Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._quiet(target.value, frame)
            if isinstance(owner, Thing):
                self._attributes[id(owner), target.attr] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assign(part, UNKNOWN, frame)

    def _if(self, node: ast.If, frame: _Frame, at_yield: Callable[[], None] | None) -> None:
        holds = truth(self.value(node.test, frame))
        if holds is None:
            if not any(self._calls_something(arm, frame, at_yield) for arm in (node.body, node.orelse)):
                # Special cases that only compute or leave early say nothing about the order of the common one.
                return
            holds = self._choose()
        self.body(node.body if holds else node.orelse, frame, at_yield)

    def _choose(self) -> bool:
        if self.made == len(self.choices):
            raise _Undecided
        self.made += 1
        return self.choices[self.made - 1]

    def _calls_something(
        self, arm: list[ast.stmt], frame: _Frame, at_yield: Callable[[], None] | None
    ) -> bool:
        """Whether walking the arm finds anything; nothing of the walk itself changes."""
        if not any(mentions(statement, self.words) for statement in arm):
            return False
        trial = Walk(self.facts, self.marks, self.words, ())
        trial._stack, trial._attributes = list(self._stack), dict(self._attributes)
        inner = _Frame(frame.me, dict(frame.names), frame.touch)
        yielded: list[bool] = []
        try:
            trial.body(arm, inner, (lambda: yielded.append(True)) if at_yield else None)
        except _Return:
            pass
        except _Undecided:
            return True
        return bool(trial.found or yielded)

    def _with(
        self,
        items: list[ast.withitem],
        body: list[ast.stmt],
        frame: _Frame,
        at_yield: Callable[[], None] | None,
    ) -> None:
        if not items:
            self.body(body, frame, at_yield)
            return
        manager = self.value(items[0].context_expr, frame)
        left: list[_Return] = []

        def inside() -> None:
            try:
                self._with(items[1:], body, frame, at_yield)
            except _Return as returned:
                left.append(returned)  # what follows the yield comes first

        if isinstance(manager, _Manager):
            touch = manager.frame.touch if frame.touch is None else None
            self._note(touch and f"enter {touch}")
            with suppress(_Return):
                self.body(manager.function.body, manager.frame, inside)
            self._note(touch and f"leave {touch}")
        else:
            inside()
        if left:
            raise left[0]

    def _note(self, name: str | None) -> None:
        if name:
            self.found.append(Place(name, None))

    # Expressions.

    def _quiet(self, node: ast.expr, frame: _Frame) -> Any:
        """The value of a name or attribute, which calls nothing."""
        return self.value(node, frame) if isinstance(node, (ast.Name, ast.Attribute)) else UNKNOWN

    def value(self, node: ast.expr, frame: _Frame) -> Any:
        """What is known of an expression; the calls in it are walked in the order in which Python makes them."""
        known = node.value if isinstance(node, ast.Constant) else self.facts.get(text_of(node), UNKNOWN)
        if known is not UNKNOWN:
            return known
        if isinstance(node, ast.Name):
            return frame.me if node.id == "self" else frame.names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value, frame)
            if not isinstance(owner, Thing):
                return UNKNOWN
            if node.attr in owner.methods:
                return _Bound(owner, owner.methods[node.attr])
            return owner.parts.get(node.attr, self._attributes.get((id(owner), node.attr), UNKNOWN))
        if isinstance(node, ast.Call):
            return self._call(node, frame)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            holds = truth(self.value(node.operand, frame))
            return UNKNOWN if holds is None else not holds
        if isinstance(node, ast.BoolOp):
            return self._bool_op(node, frame)
        if isinstance(node, ast.Compare):
            return self._compare(node, frame)
        if isinstance(node, ast.IfExp):
            holds = truth(self.value(node.test, frame))
            if holds is not None:
                return self.value(node.body if holds else node.orelse, frame)
        if isinstance(node, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr)):
            self._children(node, frame)
            return SOMETHING
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return SOMETHING
        self._children(node, frame)
        return UNKNOWN

    def _children(self, node: ast.AST, frame: _Frame) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, frame)
            elif isinstance(child, ast.keyword):
                self.value(child.value, frame)

    def _bool_op(self, node: ast.BoolOp, frame: _Frame) -> Any:
        decides = isinstance(node.op, ast.Or)
        unknown = False
        for operand in node.values:
            holds = truth(self.value(operand, frame))
            if holds is decides:
                return decides
            unknown = unknown or holds is None
        return UNKNOWN if unknown else not decides

    def _compare(self, node: ast.Compare, frame: _Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.comparators[0], frame)
        if len(node.ops) != 1 or left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        operator = node.ops[0]
        if isinstance(operator, (ast.Is, ast.IsNot)):
            return (left is right) is isinstance(operator, ast.Is)
        if isinstance(operator, (ast.Eq, ast.NotEq)) and SOMETHING not in (left, right):
            return (left == right) is isinstance(operator, ast.Eq)
        return UNKNOWN

    def _call(self, node: ast.Call, frame: _Frame) -> Any:
        text = text_of(node.func)
        positional = [self.value(a.value if isinstance(a, ast.Starred) else a, frame) for a in node.args]
        named = {k.arg: self.value(k.value, frame) for k in node.keywords}
        if text in self.marks and frame.touch is None:
            self.found.append(Place(self.marks[text], None))
            return UNKNOWN
        if text == "dict":
            return SOMETHING
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value, frame)
            if isinstance(owner, Thing) and owner.is_connector:
                self.found.append(Place(node.func.attr, frame.touch))
                return UNKNOWN
        called = self._quiet(node.func, frame)
        if not isinstance(called, _Bound):
            return UNKNOWN
        return self._method(called.owner, called.function, positional, named, frame)

    def _method(
        self,
        owner: Thing,
        function: ast.FunctionDef,
        positional: list[Any],
        named: dict[str | None, Any],
        frame: _Frame,
    ) -> Any:
        touch = frame.touch
        if touch is None and function.name in owner.touch_points:
            touch = function.name
        inner = _Frame(owner, bound(function, positional, named), touch)
        if makes_context(function):
            return _Manager(function, inner)
        if function.name in self._stack:
            return UNKNOWN
        if touch is not None and frame.touch is None:
            self.found.append(Place(touch, None))
            at = len(self.found)
        self._stack.append(function.name)
        try:
            self.body(function.body, inner)
            result: Any = None
        except _Return as returned:
            result = returned.value
        finally:
            self._stack.pop()
        if isinstance(result, _Manager) and touch is not None and frame.touch is None:
            # Not called but entered: `with` says when.
            del self.found[at - 1 :]
            result.frame.touch = touch
        return result


@dataclass(frozen=True)
class _Bound:
    """A method that was looked up and not called yet."""

    owner: Thing
    function: ast.FunctionDef


@dataclass
class _Manager:
    """A context manager written as a generator: what stands before its yield comes first, the rest last."""

    function: ast.FunctionDef
    frame: _Frame


def walk(
    entry: Callable[["Walk"], None],
    facts: Mapping[str, Any],
    marks: Mapping[str, str],
    words: frozenset[str],
) -> list[tuple[Place, ...]]:
    """Every sequence of places in the case that the facts describe; one, where they decide all that matters.

    Args:
        entry: what is called, in order.
        facts: source text and what it is known to be; a ``Thing`` for an object.
        marks: source text of functions that are looked for themselves, and their names.
        words: at least one of which stands in every statement that leads to something looked for.

    Raises:
        CannotRead: more undecided branches than a case can have.
    """
    open_choices: list[tuple[bool, ...]] = [()]
    found: list[tuple[Place, ...]] = []
    while open_choices:
        choices = open_choices.pop()
        if len(choices) > 10:
            raise CannotRead(
                "more than ten branches around the connector's calls depend on conditions unknown here"
            )
        one = Walk(facts, marks, words, choices)
        try:
            entry(one)
        except _Undecided:
            open_choices += [(*choices, True), (*choices, False)]
            continue
        if tuple(one.found) not in found:
            found.append(tuple(one.found))
    return found
