"""The engines that a campaign may run side by side on one host: what each is launched on, and that they have nothing in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.gpus import Cards, cards_of, engines_shown
from connector_tax.run.engine.ports import LAST_PORT


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one engine.

    Attributes:
        engine: with the card and the port of this place.
        place: among ``of`` that the campaign may have here at the same time, from 0.
    """

    engine: EngineConfig
    cards: Cards
    place: int = 0
    of: int = 1


def slots_of(engine: EngineConfig, environ: Mapping[str, str] | None = None) -> tuple[Slot, ...]:
    """One for each of ``engine.gpus``, or the one of ``engine.gpu``.

    Fewer where CUDA_VISIBLE_DEVICES shows cards for fewer, as in a job of a batch system.

    Raises:
        ConfigError: a card is not there, or two places share one; the cards are not of one kind; or a port is above the last there is.
    """
    of = len(engine.slots)
    here = min(of, engines_shown(engine, environ) or of)
    if engine.port + of - 1 > LAST_PORT and engine.port:
        raise ConfigError(
            f"engine.port: {engine.port}: each of {of} engines has a port of its own from there on, and the last one is {LAST_PORT}. "
            "Give a lower one, or 0 to have free ones taken."
        )
    found = []
    for place, gpu in enumerate(engine.slots[:here]):
        own = replace(engine, gpu=gpu, port=engine.port + place if engine.port else 0)
        found.append(Slot(own, cards_of(own, environ, place), place, here))
    _check_apart(found)
    return tuple(found)


def _check_apart(slots: list[Slot]) -> None:
    first: dict[str, Slot] = {}
    for slot in slots:
        for gpu in slot.cards.gpus:
            if gpu.uuid in first:
                raise ConfigError(
                    f"engine.gpus: {first[gpu.uuid].engine.gpu} and {slot.engine.gpu} would both run on {gpu}. Each engine takes "
                    f"{len(slot.cards.gpus)} cards from the one that is named on; name cards that are so far apart."
                )
            first[gpu.uuid] = slot
    kinds = {gpu.name: gpu for slot in slots for gpu in slot.cards.gpus}
    if len(kinds) > 1:
        raise ConfigError(
            f"engine.gpus: cards of {len(kinds)} kinds: {'; '.join(map(str, kinds.values()))}. One campaign measures on one kind, also "
            "with engine.mix_cards. Name those of one kind, or make a campaign of each."
        )
