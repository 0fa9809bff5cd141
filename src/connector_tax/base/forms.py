"""Whether a JSON value has the form its reader relies on; the first place where it has not is named."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from connector_tax.base.opening import shown

# A form is a type, a tuple of types, a list (an array, every element of its first's form), a mapping of required keys,
# or of ``...`` to the form of every value, or a function that says what is wrong with a value, None where nothing is.
Form = Any
NUMBER = (int, float)


@dataclass(frozen=True, slots=True)
class _Optional:
    form: Form


def misfit(value: Any, form: Form, place: str = "") -> str | None:
    """``"engine.gpu is no list"``, or None where the form is kept."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return f"{place or 'it'} is no object"
        if ... in form:
            form = dict.fromkeys(value, form[...])
        found = (
            f"no {_join(place, key)}" if key not in value else misfit(value[key], wanted, _join(place, key))
            for key, wanted in form.items()
        )
        return next((fault for fault in found if fault is not None), None)
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{place} is no list"
        parts = (misfit(part, form[0], f"{place}[{k}]") for k, part in enumerate(value))
        return next((fault for fault in parts if fault is not None), None)
    if isinstance(form, _Optional):
        return None if value is None else misfit(value, form.form, place)
    if callable(form) and not isinstance(form, type):
        wrong: str | None = form(value)
        return None if wrong is None else f"{place} {wrong}"
    # True is an int to Python and none to JSON.
    kept = isinstance(value, form) and (form is bool or not isinstance(value, bool))
    names = [t.__name__ for t in (form if isinstance(form, tuple) else (form,))]
    return None if kept else f"{place} is no {' or '.join(names)}"


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def named(check: Callable[[Any], bool], what: str) -> Form:
    """``check`` as a form; ``what`` it is for: "no bare name"."""
    return lambda value: None if check(value) else f"is {what}: {shown(value)}"


def anything(value: Any) -> str | None:
    """A form that every value has: only that there is one is asked."""
    return None


def optional(form: Form) -> Form:
    """The same, or null."""
    return _Optional(form)


def within(low: float, high: float, kind: Any = NUMBER) -> Form:
    """A number of ``kind`` with ``low <= number <= high``."""

    def check(value: Any) -> str | None:
        if fault := misfit(value, kind):
            return fault.strip()
        return None if low <= value <= high else f"is {value!r}, wanted is {low:g} to {high:g}"

    return check
