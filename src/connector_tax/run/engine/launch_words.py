"""``python -m connector_tax.run.engine.launch_words``: what of a launch is secret; asked by ``launch/record.sh``.

Reads the engine's command from standard input, each word ended by NUL, and the environment, in which RECORD_PYTHONPATH is the engine's and RECORD_REFERRING
a JSON list of what in the config refers to secrets (``"user_${DB_PASSWORD}"``). Writes fields, each ended by NUL:

* ``plain NAME`` for a variable that shapes the engine, or that the config sets, and is written out;
* ``needed NAME`` for one that the config set to a secret, or ``MODEL``: whoever runs the script sets it;
* ``held NAME`` for a secret that the run merely inherited;
* ``was TEXT`` behind one of these two where only a part is secret: the rest;
* ``given NAME`` for a variable that stands for a secret of the command, or of what is written out;
* ``as NAME N`` for a ``plain`` variable in which a secret stands that is known from elsewhere, then N fields as of a word;
* ``word N`` for each word, then N fields: text and names of variables in turn, text first and last.

The last field is ``end``. Standard library only, as the redactor.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from secrets import token_hex

from connector_tax.base.secrets import MASKED, REFERENCE, Mask, is_secret, is_secret_name, secrets_of, without

_SHAPING = re.compile(
    r"(VLLM|LMCACHE|MOONCAKE|NIXL|UCX|NCCL|OMP|MKL|CUDA|TORCH|PYTORCH|HF|CONNECTOR_TAX|LD)_\w+", re.ASCII
)
# The pipeline's own.
_OURS = frozenset(
    f"CONNECTOR_TAX_{name}"
    for name in ("CACHE", "REFERENCES", "DATE", "HANDED", "PROJECT", "RUN", "STORE", "TARGETS", "VIRTUAL_GPU")
)
_MARK = f"\ue000{token_hex(8)}\ue000"
_MARKED = re.compile(rf"{_MARK}(\w+){_MARK}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_REFERRING_WORD = re.compile(rf"\w*(?:{REFERENCE.pattern}\w*)+")
# As short a value may be that of a variable by accident.
_MIN_CHARS = 6


def fields(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """What ``main`` writes."""
    told, written_out = [], []
    known = secrets_of(environment)
    referring = _Referring.of(environment)
    wanted = environment.get("RECORD_NEEDED", "").split()
    for name in sorted(n for n in environment if _is_shaping(n, environment) or n in wanted):
        of_variable = _variable(name, environment[name], known, referring, needed=name in wanted)
        told += of_variable
        written_out += [name] if of_variable == [f"plain {name}"] else []
    for name in ("MODEL", "ENGINE_PYTHON"):
        value = environment.get(name, "")
        if without(value, known) != value:
            told += [f"needed {name}", f"was {referring.without(without(value, known), _masked)}"]
            words = [f"{_MARK}{name}{_MARK}" if word == value else word for word in words]
    # This program's own PYTHONPATH is not the engine's.
    values = [environment[name] for name in written_out] + [environment.get("RECORD_PYTHONPATH", "")]
    written_out.append("PYTHONPATH")
    pieces, names = _pieces([*words, *values], environment, known, referring)
    told += [f"given {name}" for name in names if f"needed {name}" not in told]
    for name, parts in zip(written_out, pieces[len(words) :], strict=True):
        told += [f"as {name} {len(parts)}", *parts] if len(parts) > 1 else []
    for parts in pieces[: len(words)]:
        told += [f"word {len(parts)}", *parts]
    return [*told, "end"]


def _is_shaping(name: str, environment: Mapping[str, str]) -> bool:
    return bool(_SHAPING.fullmatch(name)) and name not in _OURS and bool(environment[name])


def _masked(secret: str) -> str:
    return MASKED


def _variable(
    name: str, value: str, known: frozenset[str], referring: "_Referring", *, needed: bool
) -> list[str]:
    if not is_secret(name, value):
        return [f"plain {name}"]
    shown = MASKED if is_secret_name(name) else referring.without(without(value, known), _masked)
    return [f"{'needed' if needed else 'held'} {name}", *([] if shown == MASKED else [f"was {shown}"])]


def _pieces(
    texts: list[str],
    environment: Mapping[str, str],
    known: frozenset[str],
    referring: "_Referring",
) -> tuple[list[list[str]], list[str]]:
    """Of each text its own pieces and the variables in turn; and the variables, each once.

    Args:
        known: what stands for itself wherever it is found.
    """
    variables: dict[str, str] = {}  # secret -> its variable

    def stand_in(secret: str) -> str:
        if secret not in variables:
            variables[secret] = _variable_for(secret, environment, set(variables.values()))
        return f"{_MARK}{variables[secret]}{_MARK}"

    marked = [without(text, known, stand_in) for text in texts]
    # Words as any other, and secrets where they stand here.
    marked = [_marked(text, lambda piece: referring.without(piece, stand_in)) for text in marked]
    return [_MARKED.split(text) for text in marked], list(variables.values())


@dataclass(frozen=True, slots=True)
class _Referring:
    """Words of the config with references to secrets: a secret may be a word as any other, and part of a longer one there.

    Attributes:
        parts: word as it is launched with -> its pieces and the secrets in turn.
    """

    parts: dict[str, list[str]]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "_Referring":
        told = json.loads(environment.get("RECORD_REFERRING", "[]"))
        whole = [REFERENCE.split(word[0]) for text in told for word in _REFERRING_WORD.finditer(text)]
        # Also what is left of a word whose other secrets are known and replaced, and each by itself, where the launch has it from elsewhere.
        odd = [(word, i, j) for word in whole for i in range(1, len(word), 2) for j in range(i, len(word), 2)]
        words = [word[i - 1 : j + 2] for word, i, j in odd] + [["", word[i], ""] for word, i, _ in odd]
        parts: dict[str, list[str]] = {}
        for pieces in words:
            pieces[1::2] = [environment.get(name, "") for name in pieces[1::2]]
            if all(pieces[1::2]):
                for form in (pieces, [json.dumps(piece)[1:-1] for piece in pieces]):
                    parts["".join(form)] = form
        return cls(parts)

    def without(self, text: str, mask: Mask) -> str:
        """``text`` without the secrets, where they are no part of a longer word than the config has."""
        whole = "|".join(map(re.escape, sorted(self.parts, key=lambda v: (-len(v), v))))
        if not whole:
            return text

        def replaced(found: re.Match[str]) -> str:
            parts = self.parts[found[0]]
            return "".join(mask(p) if k % 2 else p for k, p in enumerate(parts))

        return re.sub(rf"(?<![A-Za-z0-9_])(?:{whole})(?![A-Za-z0-9_])", replaced, text)


def _marked(text: str, replaced: Callable[[str], str]) -> str:
    pieces = _MARKED.split(text)
    return "".join(f"{_MARK}{p}{_MARK}" if k % 2 else replaced(p) for k, p in enumerate(pieces))


def _variable_for(secret: str, environment: Mapping[str, str], taken: set[str]) -> str:
    """The variable that holds the secret already, or one of its own where that holds more."""
    if len(secret) >= _MIN_CHARS:
        holders = sorted(n for n, v in environment.items() if v == secret and _VARIABLE.fullmatch(n))
        if holders:
            return holders[0]
    base, number = "ENGINE_SECRET", 1
    while (found := base if number == 1 else f"{base}_{number}") in taken:
        number += 1
    return found


def main() -> None:
    words = os.fsdecode(sys.stdin.buffer.read()).split("\0")[:-1]
    sys.stdout.buffer.write(b"".join(os.fsencode(f) + b"\0" for f in fields(words, os.environ)))


if __name__ == "__main__":
    main()
