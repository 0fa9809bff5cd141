"""Secrets of a config: documents hold none, the processes that launch engines do.

A config should not hold a secret but refer to one: ``${HF_TOKEN}``. That stays as it is in the frozen config, in every document and in every
hash, and is looked up in the environment when an engine is launched. A secret that a config holds all the same is blanked in
``campaign.json``; the process that read the config hands the original on in its environment, and nowhere else.
"""

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from connector_tax.base.config.model import CampaignConfig
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.connector import STORE
from connector_tax.base.redaction import BLANKED, CONFIG_VARIABLE, REFERENCE, published, redacted
from connector_tax.base.secret_names import is_secret_name

# Linux takes no variable of 128 KiB or more.
MAX_HANDED_CHARS = 120_000


def without_harmless_references(value: Any, name: str = "") -> Any:
    """``value`` with the variables put in that it refers to; those that hold a secret, and those not set, stay ``${NAME}``.

    Args:
        name: under which it stands.
    """
    if isinstance(value, dict):
        return {key: without_harmless_references(part, str(key)) for key, part in value.items()}
    if isinstance(value, list):
        # The flag before a value names it.
        names = [name, *(str(part).lstrip("-") for part in value)]
        return [without_harmless_references(part, names[k]) for k, part in enumerate(value)]
    if not isinstance(value, str):
        return value

    # `--redis-password=${DB}` names it itself.
    own = value.partition("=")[0].lstrip("-") if "=" in value else ""

    def put_in(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None or match[0] == STORE:
            return match[0]
        return match[0] if _is_secret(found, name, own, match[1]) else found

    return REFERENCE.sub(put_in, value)


def _is_secret(found: str, *names: str) -> bool:
    return any(is_secret_name(name) for name in names) or redacted(found) != found


def with_references(value: Any, where: str) -> Any:
    """``value`` as a launch needs it: every ``${NAME}`` from the environment, but for the store's.

    Args:
        where: what it is of, for the message.

    Raises:
        ConfigError: a variable is not set, or a secret was blanked and nobody handed the original on.
    """
    if isinstance(value, dict):
        return {key: with_references(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [with_references(part, f"{where}[{k}]") for k, part in enumerate(value)]
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        if match[0] == STORE:
            return match[0]
        if match[1] not in os.environ:
            raise ConfigError(
                f"{where}: {match[0]}: that environment variable is not set. Export {match[1]}, then start again."
            )
        return os.environ[match[1]]

    return REFERENCE.sub(look_up, value)


def hand_on(config: CampaignConfig, environment: MutableMapping[str, str]) -> None:
    """Let the processes that inherit ``environment`` know what ``campaign.json`` does not say.

    Raises:
        ConfigError: there is a secret in a config too large for a variable.
    """
    environment.pop(CONFIG_VARIABLE, None)
    original = json.dumps(config.to_json())
    if published(json.loads(original)) == json.loads(original) and not REFERENCE.search(original):
        return
    if len(original) > MAX_HANDED_CHARS:
        raise ConfigError(
            f"campaign {config.campaign}: its config holds secrets and has {len(original)} characters; {MAX_HANDED_CHARS} can be handed on "
            "to the processes that launch engines. Put the secrets into the environment and write ${NAME} for each."
        )
    environment[CONFIG_VARIABLE] = original


def with_originals(document: CampaignDocument, environment: Mapping[str, str]) -> CampaignDocument:
    """A ``campaign.json`` with the secrets of its config, as launches and specification hashes need them.

    Raises:
        ConfigError: something is blanked in it, and no process handed the original of just this config on.
    """
    stored = document.config
    if BLANKED not in json.dumps(stored):
        return document
    original = json.loads(environment.get(CONFIG_VARIABLE, "null"))
    if not _blanked_from(original, stored):
        raise ConfigError(
            f"campaign.json: {', '.join(_blanked_places(stored, 'config'))}: blanked, since it is a secret. Start the campaign through "
            "Snakemake, which hands it on; or put it into the environment, write ${NAME} for it in the config, and start again."
        )
    return msgspec.structs.replace(document, config=original)


def _blanked_from(original: Any, stored: Any) -> bool:
    """Whether ``stored`` is ``original`` but for what is blanked."""
    if isinstance(stored, dict) and isinstance(original, dict):
        return len(stored) == len(original) and all(
            BLANKED in key or (key in original and _blanked_from(original[key], part))
            for key, part in stored.items()
        )
    if isinstance(stored, list) and isinstance(original, list):
        return len(stored) == len(original) and all(map(_blanked_from, original, stored))
    return bool(stored == original) or (isinstance(stored, str) and BLANKED in stored)


def _blanked_places(stored: Any, place: str) -> list[str]:
    if isinstance(stored, dict):
        return [found for key, part in stored.items() for found in _blanked_places(part, f"{place}.{key}")]
    if isinstance(stored, list):
        return [found for k, part in enumerate(stored) for found in _blanked_places(part, f"{place}[{k}]")]
    return [place] if isinstance(stored, str) and BLANKED in stored else []
