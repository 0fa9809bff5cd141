"""Fits step records of plain vLLM on a real GPU to the virtual GPU's four clock numbers, with residuals.

The numbers describe whole steps as the scheduler sees them. With asynchronous scheduling that is device
time whenever the device is busy. With synchronous scheduling it is host plus device time, so the profile
must not add host time again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from connector_tax.base.documents.identity import differences
from connector_tax.base.errors import AnalysisError
from connector_tax.base.templates import columns
from connector_tax.base.vllm_model.shape import ModelShape
from connector_tax.fleet.calibration import Resolved, resolved_of, steps_of
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.stats.capacity import StepCosts, fit_step_costs

Floats = NDArray[np.float64]
PLAIN = "plain"
QUANTILES = (0.1, 0.5, 0.9)
NAMES = ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us")
DIGITS = (1, 4, 2, 6)
# The smallest value that the profile's rounding keeps; see DIGITS.
LEAST_BASE_US = 0.1


@dataclass(frozen=True, slots=True)
class Residual:
    """Fit error of one kind of steps in one cell.

    Attributes:
        measured_us: median step time.
        errors: fitted / measured - 1, at ``QUANTILES``.
    """

    cell: str
    kind: str
    steps: int
    measured_us: float
    errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GpuFit:
    """The fit of a GPU's step costs.

    Attributes:
        costs: with ``per_prompt_us`` 0, which the clock does not model.
        resolved: the settings that the steps were measured with.
        measured: the launches themselves reported settings; otherwise they are preflight's.
        one_shape: all cells have one shape, so the cost per sequence includes its context.
    """

    costs: StepCosts
    steps: int
    residuals: tuple[Residual, ...]
    resolved: Resolved
    measured: bool
    one_shape: bool

    @property
    def settings(self) -> str:
        """The known settings that a step's cost depends on."""
        resolved = self.resolved
        value_by_setting = {
            "asynchronous scheduling": {True: "on", False: "off", None: None}[resolved.async_scheduling],
            "attention backend": resolved.attention_backend,
            "model runner": resolved.model_runner,
            "MoE config": resolved.moe_config,
            "KV blocks": resolved.num_gpu_blocks,
        }
        known_text = (
            ", ".join(f"{name} {value}" for name, value in value_by_setting.items() if value is not None)
            or "not known"
        )
        return f"{known_text} ({'as its launches logged' if self.measured else 'as seen in preflight'})"


def fit_gpu(data: CampaignData) -> GpuFit:
    """Fit the step costs of plain.

    Raises:
        AnalysisError: too few step records, too few with sequences that decode together, or launches with
            different settings.
    """
    resolved = resolved_of(data, PLAIN)
    _refuse_several_cards(resolved)
    try:
        cells, tables = steps_of([c for c in data.cells() if c.config == PLAIN], resolved)
    except AnalysisError as error:
        raise AnalysisError(f"plain: {error}") from error
    settings = [c.document.engine.settings for c in cells if c.document.engine.settings]
    if changed := {name for own in settings for name in differences(settings[0], own)}:
        raise AnalysisError(
            f"plain's launches differ in {', '.join(sorted(changed))} (engine.settings in their cells), and a"
            " profile is of one engine. Remove the runs of one of the two and start again."
        )
    table = np.concatenate(tables)
    table[:, 4] = 0.0
    one_shape = len({c.spec.shape for c in cells}) == 1
    if one_shape:
        # Each sequence then has the same context in every step, so the two costs cannot be separated.
        table[:, 3] = 0.0
    costs = replace(fit_step_costs(table[:, :5], table[:, 5]), per_prompt_us=0.0)
    if costs.base_us < LEAST_BASE_US:
        raise AnalysisError(
            f"the fit leaves {costs.base_us:.1f} us for a step without a token, which no engine has: the"
            f" {len(table)} steps of plain do not tell what a step costs from what its tokens cost. Measure"
            " at lower rates as well, or shorter prompts."
        )
    return GpuFit(
        costs,
        len(table),
        tuple(r for cell, own in zip(cells, tables, strict=True) for r in _residuals(cell, own, costs)),
        resolved,
        bool(settings),
        one_shape,
    )


def _refuse_several_cards(resolved: Resolved) -> None:
    """Check that one GPU ran the model.

    Raises:
        AnalysisError: the model was spread over several GPUs; a virtual GPU is one.
    """
    for name, cards in resolved.cards.items():
        if cards != 1:
            raise AnalysisError(
                f"the campaign's engine had {name} {cards}: its steps are of several cards, and a profile is"
                " of one. Measure on one card."
            )


def _residuals(cell: CellData, table: Floats, costs: StepCosts) -> list[Residual]:
    fitted = table[:, :4] @ np.array([getattr(costs, name) for name in NAMES])
    selected_by_kind = {
        "decode only": table[:, 1] == 0,
        "with a prompt": table[:, 1] > 0,
    }
    return [
        Residual(
            f"{cell.phase} {cell.cell_id}",
            kind,
            int(selected.sum()),
            float(np.median(table[selected, 5])),
            tuple(map(float, np.quantile(fitted[selected] / table[selected, 5] - 1, QUANTILES))),
        )
        for kind, selected in selected_by_kind.items()
        if selected.any()
    ]


def profile_text(base: dict[str, Any], fit: GpuFit, campaign: str, shape: ModelShape | None) -> str:
    """Return a file for ``config/gpus/``: ``base`` with the fitted step and, if known, the KV cache's size.

    Args:
        base: the profile of the card that was measured.
        shape: of the measured model.
    """
    step = {name: round(getattr(fit.costs, name), digits) for name, digits in zip(NAMES, DIGITS, strict=True)}
    fitted = f"fitted to {fit.steps} steps of plain in campaign {campaign}: {fit.settings}"
    sources = {**base["sources"], "step": fitted}
    profile = {**base, "step": step}
    # The base profile's value may be of another model or campaign.
    for section in (profile, sources):
        section.pop("kv_cache_bytes", None)
    tokens, value_bytes = fit.resolved.kv_tokens, fit.resolved.kv_value_bytes
    if shape is not None and tokens is not None and value_bytes is not None:
        profile["kv_cache_bytes"] = tokens * shape.kv_values * value_bytes
        sources["kv_cache_bytes"] = (
            f"{tokens} tokens of {value_bytes} bytes a value, as the engine of campaign {campaign} said"
        )
    if fit.resolved.async_scheduling is False:
        profile["host"] = dict.fromkeys(base.get("host", {}), 0)
        sources["host"] = "in the step, since the engine was scheduled synchronously"
    return yaml.safe_dump({**profile, "sources": sources}, sort_keys=False, width=140)


def fit_lines(fit: GpuFit) -> Sequence[str]:
    """Return the fit as text: the four numbers, then each cell's residuals."""
    numbers = ", ".join(
        f"{name} {getattr(fit.costs, name):,.{digits}f}" for name, digits in zip(NAMES, DIGITS, strict=True)
    )
    lines = [
        f"{fit.steps} steps of plain: {numbers}; scatter {fit.costs.scatter:.1%}",
        f"Settings: {fit.settings}",
    ]
    if fit.resolved.async_scheduling is False:
        lines.append(
            "Scheduling was synchronous: these are times of host and device together, so the profile has no"
            " host time beside them."
        )
    if fit.resolved.async_scheduling is None:
        lines.append(
            "Whether scheduling was asynchronous is not known. If it was not, these are times of host and"
            " device together: set the profile's host to 0."
        )
    if fit.one_shape:
        lines.append(
            "All cells have one shape, so a sequence's cost holds that of its context. Measure further"
            " lengths (Phase B) to tell the two apart."
        )
    rows = [["cell", "kind", "steps", "median, us", "fitted / measured - 1: p10, p50, p90"]]
    for r in fit.residuals:
        errors = ", ".join(f"{e:+.1%}" for e in r.errors)
        rows.append([r.cell, r.kind, f"{r.steps:,}", f"{r.measured_us:,.0f}", errors])
    return [*lines, *columns(rows)]
