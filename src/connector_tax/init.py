"""Writes a config for a number of hours: the largest plan of a short ladder that fits on a GPU.

Rates are fractions of plain's capacity by that GPU's clock; ``plan`` gives a plan's duration.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from msgspec.structs import asdict, replace

from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.config.gpu import GPUS
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_json, write_text
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.plan.estimate import DEFAULT_MODEL, Expected
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.templates import template
from connector_tax.base.vllm_model.costs import load_cost_model
from connector_tax.check.request import CONNECTORS, MODELS
from connector_tax.run.engine.gpus import Gpu
from connector_tax.run.rehearsal.campaign import clocked_costs

SHAPE = Shape(2048, 64)
# The highest rate of three is this share of plain's capacity: connectors may take a third more. A fourth
# rate is beyond capacity.
SHARE, RATES, MOST_RATES = 0.6, 3, 4
# One worker and one API server keep up with 80 requests and 5,000 tokens a second.
MOST_PER_S = 80.0
ADDED = ("plain", "noop_connector")


@dataclass(frozen=True, slots=True)
class Rung:
    """One plan of the ladder.

    Attributes:
        repeats: blocks of launches besides Phases A and B, which are two more.
        lengths: prompts and answers of Phase B.
        requests: fewest behind each number.
    """

    repeats: int
    lengths: tuple[tuple[int, ...], tuple[int, ...]]
    requests: int
    rates: int = RATES


_ONE, _FOUR = ((2048,), (64,)), ((512, 2048), (64, 256))
_SIX, _NINE = ((512, 2048, 8192), (64, 256)), ((512, 2048, 8192), (64, 256, 512))
# The largest first. Blocks are worth more than lengths, and lengths more than requests: the variance between
# launches hides a tax, and the variance over 50 requests of one launch hardly does.
LADDER = (
    Rung(18, _NINE, 200, MOST_RATES),
    Rung(12, _NINE, 200, MOST_RATES),
    Rung(12, _SIX, 100, MOST_RATES),
    Rung(10, _SIX, 100, MOST_RATES),
    Rung(8, _SIX, 100, MOST_RATES),
    Rung(6, _SIX, 100, MOST_RATES),
    Rung(5, _SIX, 100, MOST_RATES),
    Rung(4, _SIX, 100, MOST_RATES),
    Rung(4, _FOUR, 100),
    Rung(3, _FOUR, 100),
    Rung(3, _FOUR, 50),
    Rung(2, _FOUR, 50),
    Rung(2, _ONE, 50),
    Rung(1, _ONE, 50),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Input of a config.

    Attributes:
        shape: the model's ``config.json``.
        gpu: a profile of ``config/gpus/``.
        index: of the GPU on this host.
        command: as typed.
    """

    campaign: str
    connectors: tuple[str, ...]
    model: str
    shape: Foreign
    gpu: str
    hours: float
    python: str = "${ENGINE_PYTHON}"
    index: int = 0
    command: str = "connector-tax init"


def known_connectors() -> tuple[ConnectorSpec, ...]:
    """Return the connectors of ``config/connectors.yaml``, without test connectors."""
    mapping = {
        "campaign": "init",
        "connectors": list(read_yaml(CONNECTORS)),
        "engine": {"kind": "vllm", "python": "-", "model": "-", "served_model_name": "-"},
        "phase_a": {"rates_per_s": [1], "input_tokens": 1, "output_tokens": 2},
    }
    return parse_campaign(mapping, "init").connectors


def shape_of(model: str, file: str | None) -> Foreign:
    """Return a model's ``config.json``, from ``file``, the folder ``model`` or ``config/models/``.

    Raises:
        ConfigError: there is none.
    """
    name = Path(model).name
    places = [Path(file)] if file else [Path(model, "config.json"), MODELS / f"{name}.json"]
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        known = ", ".join(sorted(p.stem for p in MODELS.glob("*.json")))
        raise ConfigError(
            f"{file or model}: the shape of this model is not known. Known: {known}. Of another one give its"
            " config.json: --model-config FILE"
        )
    value = read_json(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: wanted is a model's config.json, a JSON object.")
    return value


def card_of(name: str | None, gpus: Sequence[Gpu]) -> tuple[str, Gpu | None]:
    """Return a profile of ``config/gpus/`` and this host's GPU that it describes, or None.

    Raises:
        ConfigError: no profile is given or fits this host's GPUs.
    """
    names = {path.stem: str(read_yaml(path)["name"]) for path in sorted(GPUS.glob("*.yaml"))}
    fits = [(stem, gpu) for gpu in gpus for stem, full in names.items() if gpu.name == full]
    if name is None and fits:
        return fits[0]
    if name and name.lower() in names:
        return next((fit for fit in fits if fit[0] == name.lower()), (name.lower(), None))
    has = f"no profile of {gpus[0].name} is there" if gpus else "this host has no GPU"
    raise ConfigError(
        f"{'no GPU ' + repr(name) if name else has}. Say for which card to plan: --gpu NAME, of"
        f" {', '.join(names)}."
    )


def costs_of(wanted: Wanted, folder: Path) -> EngineCosts:
    """Return the step costs of the plan: this model on the GPU's clock.

    Args:
        folder: gets a model's folder.

    Raises:
        ConfigError: the model does not fit on the GPU, or its step time cannot be computed.
    """
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    write_text(model / "config.json", json.dumps(wanted.shape))
    mapping = yaml.safe_load(config_text(wanted, LADDER[-1], [1.0], None, 60.0))
    mapping["engine"] |= {"kind": "virtual_gpu", "virtual_gpu": {"gpu": wanted.gpu}, "model": str(model)}
    config = parse_campaign(mapping, "init")
    base, _ = load_cost_model(PROJECT_ROOT / DEFAULT_MODEL)
    return replace(clocked_costs(config.engine, base), jitter_cv=base.jitter_cv)


def plans(wanted: Wanted, costs: EngineCosts) -> Iterator[tuple[str, CampaignConfig]]:
    """Yield plans that fit the hours, the largest first: the config's text, and the config.

    Raises:
        ConfigError: nothing fits; says how long the smallest takes.
    """
    smallest = _parsed(wanted, config_text(wanted, LADDER[-1], [1.0], costs, 60.0))
    capacity = 1 / Expected.of(smallest).use("plain", 1.0, SHAPE)
    lowest = float(f"{min(SHARE * capacity, MOST_PER_S) / 2 ** (RATES - 1):.2g}")
    found, limit = False, wanted.shape.get("max_position_embeddings")
    for rung in LADDER:
        if isinstance(limit, int) and _longest_tokens(rung) > limit:
            continue
        rates = [lowest * 2**k for k in range(rung.rates)]
        plan = replace(
            smallest,
            phase_a_rates_per_s=tuple(rates),
            phase_b_input_tokens=rung.lengths[0],
            phase_b_output_tokens=rung.lengths[1],
            repeats=rung.repeats,
        )
        # Shapes of Phase B that are too large for the highest rate have lower ones of their own.
        slowest = min([lowest, *Expected.of(plan).rates().safe_by_shape.values()])
        most_s = math.ceil(30 + 1.5 * rung.requests / slowest)
        plan = replace(plan, cell=replace(plan.cell, min_completed=rung.requests, max_cell_s=float(most_s)))
        s = expected_left_s(plan, {p: plan.members(p) for p in plan.phases}, None, None)
        if s <= wanted.hours * 3600:
            found = True
            text = config_text(wanted, rung, rates, costs, most_s)
            yield text, _parsed(wanted, text)
    if not found:
        raise ConfigError(
            f"--hours {wanted.hours:g}: {len(smallest.connectors)} configurations in three blocks of launches"
            f" take about {s / 3600:.2g} h. Give --hours {math.ceil(10.5 * s / 3600) / 10:g}, or fewer"
            " connectors."
        )


def config_text(
    wanted: Wanted, rung: Rung, rates: Sequence[float], costs: EngineCosts | None, max_cell_s: float
) -> str:
    limit = wanted.shape.get("max_position_embeddings")
    longest = _longest_tokens(rung)
    vocabulary = wanted.shape.get("vocab_size")
    return template(Path(__file__).with_name("init.yaml.j2")).render(
        w=wanted,
        rung=rung,
        rates=[int(r) if r == int(r) else r for r in rates],
        shape=SHAPE,
        share=SHARE,
        connectors=[*ADDED, *(c for c in wanted.connectors if c not in ADDED)],
        campaign=quoted(wanted.campaign),
        costs=costs
        and yaml.safe_dump(asdict(costs), default_flow_style=True, sort_keys=False, width=1000).strip(),
        model=quoted(wanted.model),
        name=quoted(Path(wanted.model).name),
        python=quoted(wanted.python),
        max_model_len=min(limit, max(16384, longest)) if isinstance(limit, int) else max(16384, longest),
        token_id_high=min(100_000, vocabulary - 100) if isinstance(vocabulary, int) else 30_000,
        max_cell_s=max_cell_s,
    )


def _longest_tokens(rung: Rung) -> int:
    return max(*rung.lengths[0], SHAPE.input_tokens) + max(*rung.lengths[1], SHAPE.output_tokens)


def quoted(value: object) -> str:
    """Quote a text for YAML if necessary."""
    text = str(value)
    return text if re.fullmatch(r"[\w./${}-]*[A-Za-z}][\w./${}-]*", text) else json.dumps(text)


def _parsed(wanted: Wanted, text: str) -> CampaignConfig:
    return parse_campaign(yaml.safe_load(text), wanted.campaign)
