"""What engines resolved their settings to, as preflight saw it: ``engine_settings.json`` of each configuration, and ``engine_diff.json``."""

from typing import Any, ClassVar, Literal, TypedDict

from msgspec import UNSET, UnsetType

from connector_tax.base.documents.reading import document_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.record import Record
from connector_tax.base.records.settings import CONSEQUENCES
from connector_tax.base.units import MOST_TOKENS

# Settings of these names are numbers wherever they stand: statistics compute with them.
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks", "block_size")
# By vLLM's names. What a setting may be, vLLM decides.
Settings = Foreign


class Change(TypedDict):
    """One setting of two engines; None for what one does not tell."""

    plain: Any
    own: Any


def differences(plain: Settings, own: Settings) -> dict[str, Change]:
    """``{setting: {"plain": ..., "own": ...}}`` where the two are not the same; None for what one does not tell.

    What follows from other settings is no setting: another number of KV blocks is no difference.
    """
    return {
        name: {"plain": plain.get(name), "own": own.get(name)}
        for name in sorted({*plain, *own} - CONSEQUENCES)
        if plain.get(name) != own.get(name)
    }


class EngineSettings(Record, frozen=True, kw_only=True):
    """What preflight saw the engine of a configuration resolve."""

    REMEDY: ClassVar[str] = "Remove it and start again to have preflight look once more."

    schema: Literal[1] = 1
    settings: Settings


class EngineDiff(Record, frozen=True, kw_only=True):
    """What each configuration changed against plain.

    Attributes:
        plain: its own settings; None where they were not seen.
        configs: by configuration; None for one whose engine was not seen.
    """

    REMEDY: ClassVar[str] = "Remove it and start again to have preflight write it."

    schema: Literal[1] = 1
    campaign: str | UnsetType = UNSET
    plain: Settings | None = None
    configs: dict[str, dict[str, Change] | None]


def engine_diff_of(value: Any, where: str) -> EngineDiff:
    """``engine_diff.json``, parsed.

    Raises:
        ArtifactError: of an unknown version or another form, or a limit in it is no number.
    """
    found = document_of(value, EngineDiff, where)
    told = {"plain": found.plain or {}}
    for config, changes in found.configs.items():
        told[f"configs.{config}"] = {name: both["own"] for name, both in (changes or {}).items()}
    for place, settings in told.items():
        check_limits(settings, f"{where}: {place}", EngineDiff.REMEDY)
    return found


def check_limits(settings: Settings, where: str, remedy: str) -> None:
    """
    Raises:
        ArtifactError: a limit in ``settings`` is no number.
    """
    for name, setting in settings.items():
        if name.rpartition(".")[2] in LIMITS and not _is_limit(setting):
            raise ArtifactError(f"{where}.{name}: no number of tokens. {remedy}")


def _is_limit(setting: object) -> bool:
    if setting is None:
        return True
    return isinstance(setting, int) and not isinstance(setting, bool) and 0 <= setting <= MOST_TOKENS
