"""The check as one document, for programs."""

import msgspec

from connector_tax.base.documents.check import (
    Answered,
    Check,
    Connector,
    Device,
    Estimated,
    Experiments,
    Growth,
    HookCostRow,
    HookGrowthRow,
    HookTimesRow,
    Load,
    MeasuredRow,
    Milliseconds,
    Mode,
    TaxRow,
)
from connector_tax.base.documents.identity import DeviceIdentity
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.conclusions import conclusions
from connector_tax.check.confirm import OF_CONNECTOR
from connector_tax.check.confirm_text import concluding
from connector_tax.check.experiments import METRICS, Measured, Results
from connector_tax.check.findings import CONFIDENCE, Findings, ModeFindings
from connector_tax.check.load_tax import LoadTax
from connector_tax.check.verdict import Verdict, floor_over_loads, judge, looked_at, noise_floor
from connector_tax.read.figures.labels import reason_text
from connector_tax.read.stats.hook_waits import HookTimes
from connector_tax.read.stats.step_slopes import HookCost, HookSlopes
from connector_tax.read.stats.taxes import LATENCIES
from connector_tax.run.measure.arranged import BUSY_BESIDE


def check_document(
    findings: Findings,
    verdict: Verdict,
    fail_above: float | None,
    elapsed_s: float,
    results: Results | None = None,
    deciding: tuple[str, ...] = tuple(LATENCIES),
) -> Check:
    """Everything that is printed, and the intervals that are not."""
    request, campaigns = findings.campaigns.request, findings.campaigns
    looks = looked_at(findings, deciding)
    growth = None
    if findings.growth is not None:
        growth = Growth(tuple(map(_grown, findings.growth)), findings.growth_lost)
    return Check(
        verdict=verdict.line,
        exit_code=verdict.exit_code,
        fail_above=fail_above,
        deciding=deciding,
        confidence=CONFIDENCE,
        elapsed_s=elapsed_s,
        connector=Connector(
            request.connector_id, request.label, request.entry["kv_transfer_config"], request.notes
        ),
        model=request.model_name,
        device=_device(findings.device),
        engine=findings.engine,
        host=findings.host,
        load=Load(
            campaigns.rates_per_s,
            campaigns.lowered,
            request.input_tokens,
            request.output_tokens,
            request.blocks,
        ),
        modes={mode.mode: _mode(mode, request.connector_id, deciding, looks) for mode in findings.modes},
        growth=growth,
        experiments=None if results is None else experiments_document(results),
    )


def experiments_document(results: Results) -> Experiments:
    """What ``--confirm`` found."""
    names = (*OF_CONNECTOR, BUSY_BESIDE)
    return Experiments(
        mode=results.mode,
        rate_per_s=results.rate_per_s,
        noise_floor={m: results.floor(m) for m in METRICS},
        taxes={n: {m: _estimated(results.tax(n, m)) for m in METRICS} for n in names},
        plain={n: _measured(m) for n, m in results.plain.items()},
        connector={n: _measured(m) for n, m in results.own.items()},
        conclusions=tuple(conclusions(results)),
        words=tuple(concluding(results)),
    )


def _device(identity: DeviceIdentity | None) -> Device:
    return Device() if identity is None else msgspec.convert(identity, Device, from_attributes=True)


def _mode(mode: ModeFindings, own_id: str, deciding: tuple[str, ...], looks: int) -> Mode:
    answered, sent = mode.answered
    return Mode(
        serves=mode.failure is None and not mode.deaths_of(own_id, own=True),
        failure=mode.failure,
        deaths=mode.deaths,
        requests=Answered(answered, sent),
        cells_lost=mode.lost,
        cells_late=mode.late,
        stand_ins=mode.stand_ins,
        engine_settings=mode.switched,
        taxes=tuple(map(_tax, mode.taxes)),
        taxes_over_blocks=mode.over_blocks,
        noise_floor={metric: noise_floor(mode.taxes, metric) for metric in LATENCIES},
        noise_floor_over_loads={metric: floor_over_loads(mode.taxes, metric) for metric in LATENCIES},
        judged=tuple(judged for judged in judge(mode, looks) if judged.metric in deciding),
        processes=mode.processes,
        spinning=mode.spinning,
        slack_us={c: {f"{rate:g}": s for rate, s in by.items()} for c, by in mode.slack_us.items()},
        hooks=tuple(map(_cost, mode.hooks)),
    )


def _tax(tax: LoadTax) -> TaxRow:
    return TaxRow(
        rate_per_s=tax.rate_per_s,
        metric=tax.metric,
        ms=Milliseconds(*tax.ms),
        tax=_estimated(tax.own),
        plain_against_itself=_estimated(tax.floor),
        host_work=tax.host_work,
        host_share=tax.host_share,
        host_whole=tax.host_whole,
        clock_late=tax.late,
    )


def _cost(cost: HookCost) -> HookCostRow:
    return HookCostRow(
        hook=cost.hook,
        us_per_step=_estimated(cost.us_per_step),
        p99_us=cost.p99_us,
        calls_per_step=cost.calls_per_step,
        us_per_call=cost.us_per_call,
        cpu_us_per_step=cost.cpu_us_per_step,
    )


def _grown(hook: HookSlopes) -> HookGrowthRow:
    return HookGrowthRow(
        hook.hook, hook.n, hook.range, **{load: _estimated(e) for load, e in hook.slopes.items()}
    )


def _measured(measured: Measured) -> MeasuredRow:
    return MeasuredRow(
        missing=measured.missing,
        threads=measured.threads,
        latency={k: _estimated(v) for k, v in measured.latency.items()},
        slack_us=measured.slack_us,
        clock_late_share=measured.late_share,
        hooks={name: _times(times) for name, times in measured.hooks.items()},
    )


def _times(times: HookTimes) -> HookTimesRow:
    return HookTimesRow(_estimated(times.wall), _estimated(times.cpu), _estimated(times.wait))


def _estimated(estimate: Estimate) -> Estimated:
    low, high = estimate.interval(CONFIDENCE)
    return Estimated(
        estimate.point, low, high, estimate.n, reason_text(estimate.why_open(CONFIDENCE)) or None
    )
