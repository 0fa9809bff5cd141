"""Recognizes secrets by name and value, and masks the known ones in texts.

A secret enters a campaign by ``${NAME}`` in its config or as an environment variable. Its value is then known
and is masked wherever it occurs. Other text stays as it is: nothing is guessed from its words.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

MASKED = "<redacted>"
# Holds the names of variables that configs refer to; processes that launch engines inherit it.
REFERRED_VARIABLE = "CONNECTOR_TAX_REFERENCES"
REFERENCE = re.compile(r"\$\{(\w+)\}")

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMES = re.compile(
    r"pass_?word|passwd|passphrase|secret|credential|authorization|(db|redis|require|root|user|ssh|smtp)_?pass(?![a-z])"
    r"|(api|access|account|auth|client|db|encryption|hmac|master|private|service|signing|ssh|storage|openai|hf|wandb)_?key(?!word|file|path)"
)
_LAST_WORDS = re.compile(r"(^|_)(auth|bearer|[a-z]*cookie|creds|jwt|pw|pass|(?<=_)pwd|token)$")
# Tokens of text, which are no secrets.
_TOKENS_OF_TEXT = re.compile(
    r"(^|_)(audio|bos|cls|content|draft|end|eos|first|image|input|last|mask|max|min|next|num|output|pad|per|placeholder|prefix|sep|speech|spec"
    r"|special|start|stop|text|think|tool|unk|video|vision)_token$"
)
# Names with these endings describe a secret and hold none.
_ABOUT = re.compile(
    r"(count|dir|directory|enabled|endpoint|env|file|folder|header|home|host|length|limit|method|mode|name|path|port|provider|scheme|size|sock|socket"
    r"|timeout|ttl|type|uri|url|user)$"
)
# Sources: detect-secrets 1.5, the default rules of gitleaks 8, the services' documentation. No entropy test,
# which checksums would meet, too.
_FORMATS = {
    "a private key": r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY",
    "a password in a URL": r"://[^\s/?#@:\"']*:[^\s/?#@\"']+@",
    "a signed URL": r"[?&](?:X-Amz-Signature|X-Goog-Signature|sig)=[\w%+/-]{16,}",
    "an HTTP login": (
        r"(?i)\bauthorization: *(?:bearer|basic) \S|\b(?:bearer|basic) (?=[\w.~+/-]*[\d=])[\w.~+/-]{8,}"
    ),
    "a JSON web token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a key of OpenAI's form": r"\bsk-(?:(?:admin|ant|or|proj|svcacct)-[\w-]{20,}|[A-Za-z0-9]{20,})",
    "a GitHub token": r"\bgh[opusr]_[A-Za-z0-9]{36}|\bgithub_pat_\w{22,}",
    "a GitLab token": r"\bglpat-[\w-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    "an Azure key": r"\bAccountKey=[A-Za-z0-9+/]{40,}",
    "a Google key": r"\bAIza[\w-]{35}|\bya29\.[\w-]{16,}",
    "an NVIDIA key": r"\bnvapi-[\w-]{40,}",
    "a Slack token": r"\bxox[abeoprs]-[\w-]{10,}|//hooks\.slack\.com/services/T",
    "a Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "a Docker token": r"\bdckr_[a-z]{3}_[\w-]{20,}",
    "a Vault token": r"\bhv[bsr]\.[\w-]{20,}",
    "an npm token": r"\bnpm_[A-Za-z0-9]{36}",
    "a PyPI token": r"\bpypi-AgE[\w-]{16,}",
    "a SendGrid key": r"\bSG\.[\w-]{22}\.[\w-]{43}",
}  # fmt: skip
_PARTS = re.compile(r"://[^\s/?#@:]*:([^\s/?#@]+)@|^(?:Bearer|Basic) (\S+)$", re.IGNORECASE)
# Minimum lengths, since shorter values occur in any text: words only, other values, digits mixed with
# letters.
_MIN_CHARS_WORDS, _MIN_CHARS, _MIN_CHARS_MIXED = 16, 8, 6
# Random values of this length are masked within longer words, too.
_MIN_CHARS_WITHIN = 12


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether the name of an argument, a variable or a key marks its value as secret."""
    words = "_".join(_WORDS.findall(name)).lower()
    if _ABOUT.search(words):
        return False
    return bool(_NAMES.search(words) or (_LAST_WORDS.search(words) and not _TOKENS_OF_TEXT.search(words)))


def format_in(text: str) -> str | None:
    """Return which known secret format ``text`` contains, if any."""
    return next((format_name for format_name, pattern in _FORMATS.items() if re.search(pattern, text)), None)


def is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or format_in(value) is not None


def know_references(config: Any) -> None:
    """Register the variables that ``config`` refers to as secrets, for this process and its children.

    Unset variables do not count: a config may be read where its engine cannot run, and another config may set
    the variable to a path.
    """
    known_names = os.environ.get(REFERRED_VARIABLE, "").split()
    referred = {name for name in REFERENCE.findall(json.dumps(config)) if name in os.environ}
    if names := {*referred, *known_names} - {"STORE"}:
        os.environ[REFERRED_VARIABLE] = " ".join(sorted(names))


def secrets_of(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets in an environment, and secret parts of them such as a URL's password."""
    referred = environment.get(REFERRED_VARIABLE, "").split()
    values = {value for name, value in environment.items() if name in referred or is_secret(name, value)}
    parts = {part for value in values for match in _PARTS.finditer(value) for part in match.groups() if part}
    # A token inside a longer value counts by itself.
    parts |= {m[0] for v in values for p in _FORMATS.values() for m in re.finditer(p, v) if m[0][0] != "-"}
    return frozenset(values | parts)


def without(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets``, also as JSON, Python or a URL escapes them, or line by line."""
    pattern = _pattern_of(secrets)
    return pattern.sub(MASKED, text) if pattern is not None else text


def masked(text: str) -> str:
    """Return ``text`` without the secrets in this process's environment."""
    return without(text, _secrets_here())


def masked_values(value: Any) -> Any:
    """Return a document with its texts masked.

    Keys and numbers stay: a password may equal a connector's id or a byte count.
    """
    pattern = _pattern_of(_secrets_here())
    return value if pattern is None else _masked_values(value, pattern)


def excerpt(text: str | bytes, chars: int) -> str:
    """Return the beginning of a foreign text; masked first, since a cut secret would not be recognized."""
    return masked(text.decode(errors="replace") if isinstance(text, bytes) else text)[:chars]


def _masked_values(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASKED, value)
    if isinstance(value, dict):
        return {key: _masked_values(part, pattern) for key, part in value.items()}
    return [_masked_values(part, pattern) for part in value] if isinstance(value, list | tuple) else value


def _secrets_here() -> frozenset[str]:
    return _secrets_of_items(tuple(os.environ.items()))


@lru_cache(maxsize=4)
def _secrets_of_items(items: tuple[tuple[str, str], ...]) -> frozenset[str]:
    return secrets_of(dict(items))


@lru_cache(maxsize=64)
def _pattern_of(secrets: frozenset[str]) -> re.Pattern[str] | None:
    spellings = sorted(
        {spelling for secret in secrets for spelling in _spellings(secret.strip())},
        key=lambda f: (-len(f), f),
    )
    return re.compile("|".join(map(_word_pattern, spellings))) if spellings else None


def _spellings(secret: str) -> Iterator[str]:
    """Yield how texts spell ``secret``; nothing if it is too short to differ from words and numbers."""
    is_words = re.fullmatch(r"[A-Za-z]+(?:[_-][A-Za-z]+)*", secret)
    min_chars = _MIN_CHARS_WORDS if is_words else _MIN_CHARS_MIXED if _is_mixed(secret) else _MIN_CHARS
    if len(secret) >= min_chars and not REFERENCE.fullmatch(secret):
        as_json = (json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (True, False))
        yield from (secret, *as_json, repr(secret)[1:-1], quote(secret, safe="", errors="replace"))
        if "\n" in secret:
            yield from (
                line for line in secret.splitlines() if len(line) >= 16 and not line.startswith("-----")
            )


def _is_mixed(text: str) -> bool:
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _word_pattern(spelling: str) -> str:
    """Return a pattern of ``spelling``, a whole word unless long and random; ``\\n``, ``%3A`` may precede."""
    pattern = re.escape(spelling)
    if len(spelling) >= _MIN_CHARS_WITHIN and _is_mixed(spelling):
        return pattern
    if spelling[0].isalnum():
        pattern = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))" + pattern
    return pattern + (r"(?![A-Za-z0-9_])" if spelling[-1].isalnum() else "")
