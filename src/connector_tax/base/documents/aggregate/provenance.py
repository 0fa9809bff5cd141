"""``provenance`` of ``aggregate.json``: what a campaign was measured with."""

from typing import Annotated, Any, Literal

import msgspec

from connector_tax.base.documents.aggregate.connectors import MeasuredOn
from connector_tax.base.documents.aggregate.words import Count, Phase, Scalar
from connector_tax.base.documents.identity import kinds_of

Arrival = Literal["fixed", "poisson", "gamma"]
EngineKind = Literal["vllm", "virtual_gpu", "emulator"]
RANDOM: tuple[Arrival, ...] = ("poisson", "gamma")
# Of an aggregate of an early version, which does not say it.
USUAL_CONFIDENCE = 0.95


class VirtualGpu(msgspec.Struct, frozen=True, kw_only=True):
    """What the clock in place of a GPU went by; of a campaign that has no cell yet nothing of it is known.

    Attributes:
        step: microseconds of a step and what it grows by, by name.
        host: microseconds that a GPU's runner would take on the host, by name.
    """

    profile: str = ""
    sha256: str = ""
    name: str = ""
    step: dict[str, float] = {}
    host: dict[str, float] = {}


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Of the newest cell, and of the campaign.

    Attributes:
        arrival: of Phases A to B' and of blocks; null in an aggregate of an earlier version.
        cards: where several engines could run side by side: each card -> the phases that were measured on it.
        mixed_cards: there: the phases whose cells, which are compared with one another, ran on more than one card.
        side_by_side: there: engines that were asked at the same time, at most; not in an aggregate of an earlier version.
        container: only where engines ran in one, as in ``cell.json``; its image's digest is among ``versions``.
        virtual_gpu: only where there is one, as in ``cell.json``; ``clock`` is what is read of it.
        settings: what else of the config shapes a measurement, by its names there; ``engine`` and ``connectors`` hold what a launch
            takes. Null in an aggregate of an earlier version, which has the hash only.
        order: phase -> configurations.
        confidence: of every interval.
    """

    engine_kind: EngineKind | None = None
    model: str | None = None
    engine_args: dict[str, Scalar] = {}
    arrival: Arrival | None = None
    versions: dict[str, Scalar] = {}
    gpu: tuple[str, ...] = ()
    cards: dict[str, tuple[Phase, ...]] | msgspec.UnsetType = msgspec.UNSET
    mixed_cards: tuple[Phase, ...] | msgspec.UnsetType = msgspec.UNSET
    side_by_side: Count | msgspec.UnsetType = msgspec.UNSET
    container: dict[str, Scalar] | msgspec.UnsetType = msgspec.UNSET
    virtual_gpu: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    host: dict[str, Scalar] = {}
    code: dict[str, str] = {}
    settings: dict[str, Any] | None = None
    config_hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    order: dict[Phase, tuple[str, ...]] = {}
    seed: int | None = None
    created_utc: str | None = None
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = USUAL_CONFIDENCE
    bootstrap_draws: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def clock(self) -> VirtualGpu | None:
        """What the clock went by, where the device was one; else None."""
        if self.engine_kind != "virtual_gpu":
            return None
        return msgspec.convert(self.virtual_gpu or {}, VirtualGpu)

    @property
    def measured_on(self) -> MeasuredOn:
        if self.versions.get("emulator") or self.engine_kind == "emulator":
            return MeasuredOn(kind="embedded_engine")
        if (clock := self.clock) is not None:
            return MeasuredOn(kind="virtual_gpu", device=clock.name)
        if self.gpu:
            return MeasuredOn(kind="gpu", device=kinds_of(self.gpu)[0])
        if self.versions or self.host:
            return MeasuredOn(kind="cpu", device=str(self.host.get("cpu") or ""))
        return MeasuredOn(kind="unknown")

    @property
    def engines_at_once(self) -> int:
        """Engines that were asked at the same time, at most: as far as an aggregate of an earlier version tells, one on each card."""
        if self.side_by_side is msgspec.UNSET:
            return len(self.cards or ()) or 1
        return self.side_by_side

    @property
    def random_arrivals(self) -> bool:
        """Whether two of the three criteria of saturation mean something else in this campaign."""
        return self.arrival in RANDOM
