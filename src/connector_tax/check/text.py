"""What a person reads of a check; the last line is the verdict."""

from collections.abc import Iterator

from connector_tax.base.documents.check import Switched
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.campaigns import mode_words
from connector_tax.check.confirm_text import confirm_text
from connector_tax.check.experiments import Results
from connector_tax.check.findings import CONFIDENCE, PLAIN, Findings, ModeFindings
from connector_tax.check.load_tax import LoadTax
from connector_tax.check.ratio_text import ratio_text
from connector_tax.check.verdict import NAMES, Verdict, died_words, floor_over_loads, noise_floor
from connector_tax.read.stats.step_slopes import LOADS, PER_LAYER, HookSlopes

NOT_SHOWN = (
    "The device is a clock: kernels, memory traffic, transfers and what a GPU's runner prepares on the host are not in these numbers.\n"
    "Prompts are new to every cache, so no KV is loaded. Copies that a connector makes are clocked by the stand-ins named below.\n"
    "Wall times of hooks are this host's; their CPU times carry over to hosts with such cores."
)
COLUMNS = {
    "per_running_request": "running request",
    "per_cached_block": "cached block",
    "per_1000_prefix_blocks": "1,000 prefix blocks",
    "per_new_block": "new block",
    "per_new_request": "new request",
    PER_LAYER: "layer",
}
LEAST_US = 0.5
# Of a latency.
LEAST_LATE = 0.001
# Over all that a load moved by; what is less is in the JSON alone.
LEAST_GROWTH_US = 2.0


def check_text(findings: Findings, verdict: Verdict, *, explain: bool, results: Results | None = None) -> str:
    lines = [*_head(findings)]
    for mode in findings.modes:
        lines += ["", *_mode(findings, mode, explain)]
    if findings.growth is not None:
        lines += ["", *_growth(findings)]
    if results is not None:
        lines += ["", *confirm_text(results)]
    return "\n".join([*lines, "", verdict.line])


def _head(findings: Findings) -> Iterator[str]:
    request, device, host = findings.campaigns.request, findings.device, findings.host
    name = (device.name if device is not None else None) or request.gpu
    vllm = findings.engine.get("vllm", "?")
    yield f"{request.label} on a virtual {name}, {request.model_name}, vLLM {vllm}, {host.get('cores', '?')} cores"
    yield NOT_SHOWN
    shares = ", ".join(f"{share:.0%}" for share in request.load_shares)
    rates = ", ".join(f"{rate:g}" for rate in findings.campaigns.rates_per_s)
    less = "less than " if findings.campaigns.lowered else ""
    shape = f"{request.input_tokens} + {request.output_tokens} tokens"
    yield f"loads: {rates} req/s of {shape}, {less}{shares} of what the device holds" + (
        "; the host holds no more" if less else ""
    )
    yield from (f"note: {note}" for note in request.notes)


def _mode(findings: Findings, mode: ModeFindings, explain: bool) -> Iterator[str]:
    yield f"== {mode_words(mode.mode)} scheduling =="
    if mode.failure is not None:
        yield f"starts and serves: no: {mode.failure}"
        return
    ok, sent = mode.answered
    answered = f"{ok:,} of {sent:,} requests answered in the cells kept"
    own_id = findings.campaigns.request.connector_id
    if own := mode.deaths_of(own_id, own=True):
        yield f"starts and serves: no: its engine {died_words(own)}; {answered}"
    else:
        yield f"starts and serves: {'yes' if ok and ok == sent else 'in part'}, {ok:,} of {sent:,} requests answered"
    if plain := mode.deaths_of(own_id, own=False):
        yield f"plain's engine {died_words(plain)}"
    yield from (f"stand-in: {words}" for words in mode.stand_ins)
    yield from _settings(mode.switched, explain)
    yield from (f"cell lost: {lost}" for lost in mode.lost)
    yield from (f"clock late, and the cell counts: {late}" for late in mode.late)
    yield from _taxes(mode)
    yield from _blocks(mode)
    yield from _slack(mode, findings.campaigns.request.connector_id)
    yield from _processes(mode, findings)
    yield from _hooks(mode)


def _settings(changes: tuple[Switched, ...], explain: bool) -> Iterator[str]:
    if not changes:
        yield "engine settings switched: none"
    for change in changes:
        yield f"engine setting switched: {change.setting}: {change.plain} -> {change.own}"
        if explain:
            yield from (f"    vLLM: {reason}" for reason in change.reasons)
            if not change.reasons:
                yield "    vLLM's log does not say why"


def _taxes(mode: ModeFindings) -> Iterator[str]:
    yield f"{'req/s':>6}  {'':9} {'plain':>9} {'again':>9} {'connector':>9}   tax of one launch [{CONFIDENCE:.0%}]        {'plain against itself':30} host's work"
    for tax in mode.taxes:
        ms = " ".join(f"{'-':>9}" if value is None else f"{value:>9.3f}" for value in tax.ms)
        yield f"{tax.rate_per_s:>6g}  {NAMES[tax.metric]:9} {ms}   {_ratio(tax.own):30} {_ratio(tax.floor):30} {_work(tax)}"
    over_blocks = bool(mode.over_blocks)
    floor_of = noise_floor if over_blocks else floor_over_loads
    floors = {m: floor_of(mode.taxes, m) for m in NAMES}
    known = ", ".join(f"{NAMES[m]} {f:.2%}" for m, f in floors.items() if f is not None)
    what = (
        "the largest difference of plain from itself"
        if over_blocks
        else "what plain differs from itself by over the loads together; the verdict's intervals are wider by it"
    )
    yield f"noise floor ({what}): {known or 'not known'}"
    held = (
        ""
        if over_blocks
        else "; the verdict's intervals hold what is left of the tax at plain's speed, and at plain's clock"
    )
    yield (
        "host's work: by how much longer a fixed piece of work took beside the connector than beside plain; of TPOT also which share of the steps "
        f"the device did not cover; clock: by how much longer the latency may be since results came later beside the connector{held}"
    )


def _work(tax: LoadTax) -> str:
    late = f", clock {tax.late:+.1%}" if abs(tax.late) >= LEAST_LATE else ""
    if tax.host_work is None:
        return f"-{late}"
    share = f" x {tax.host_share:.2f}" if tax.metric.startswith("tpot") else ""
    return f"{tax.host_work:+.0%}{share}{late}"


def _blocks(mode: ModeFindings) -> Iterator[str]:
    for tax in mode.over_blocks:
        interval = ratio_text(tax.point, tax.low, tax.high)
        yield f"{tax.rate_per_s:>6g}  {NAMES[tax.metric]:9} over {tax.blocks} blocks of launches: {interval}, noise floor {tax.floor:.2%}"


def _slack(mode: ModeFindings, own_id: str) -> Iterator[str]:
    parts = []
    for config, name in ((PLAIN, "plain"), (own_id, "connector")):
        found = mode.slack_us.get(config, {})
        if found:
            parts.append(f"{name} " + ", ".join(f"{s['p50']:,.0f}" for _, s in sorted(found.items())))
    if parts:
        yield f"slack, us (median time the host has left in a step, by load): {'; '.join(parts)}"


def _processes(mode: ModeFindings, findings: Findings) -> Iterator[str]:
    own_id = findings.campaigns.request.connector_id
    for config, name in ((PLAIN, "plain"), (PLAIN_AGAIN, "again"), (own_id, "connector")):
        found = mode.processes.get(config)
        if found:
            rows = (f"{p} {_cores(v.cores)} (idle {_cores(v.idle_cores)})" for p, v in found.items())
            yield f"cores at the middle load, {name}: {', '.join(rows)}"
    yield f"threads that spin while nobody asks: {', '.join(mode.spinning) or 'none'}"


def _hooks(mode: ModeFindings) -> Iterator[str]:
    if not mode.hooks:
        return
    yield f"{'hook, us per step at the middle load':48} {'wall':>8}  {'[95%]':18} {'p99':>8} {'CPU':>8} {'calls':>7} {'per call':>9}"
    for hook in mode.hooks:
        mean = hook.us_per_step
        low, high = mean.interval(CONFIDENCE)
        if (mean.point or 0.0) < LEAST_US:
            continue
        ends = f"[{low:.1f}, {high:.1f}]" if low is not None and high is not None else ""
        yield (
            f"{hook.hook:48} {mean.point:>8.1f}  {ends:18} {hook.p99_us:>8.1f} "
            f"{'-' if hook.cpu_us_per_step is None else format(hook.cpu_us_per_step, '.1f'):>8} {hook.calls_per_step:>7.2f} "
            f"{'-' if hook.us_per_call is None else format(hook.us_per_call, '.2f'):>9}"
        )


def _growth(findings: Findings) -> Iterator[str]:
    growth = findings.growth or []
    rows, unknown = list(_grown(growth)), _not_grown(growth)
    yield (
        "how hooks grow, us of a step for each further ... (intervals of 95 % each; what is told apart from zero and moved a step by "
        f"{LEAST_GROWTH_US:g} us or more; all of it with --json):"
    )
    yield from rows
    if not growth:
        yield "    not known: there are too few step records of the connector that count"
    elif not rows and len(unknown) < len(LOADS):
        yield "    nothing"
    for reason, columns in _by_reason(unknown).items():
        what = "" if len(unknown) == len(LOADS) else f" per {', '.join(columns)}"
        yield f"    not known{what}: {reason}"
    yield from (f"cell lost: {lost}" for lost in findings.growth_lost)


def _not_grown(growth: list[HookSlopes]) -> dict[str, str]:
    """Load -> why no hook has an interval of its slope."""
    found = {}
    for load in LOADS if growth else ():
        known = any(None not in entry.slopes[load].interval(CONFIDENCE) for entry in growth)
        if not known:
            found[load] = growth[0].slopes[load].reason or "the resamples leave it open"
    return found


def _by_reason(unknown: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for load, reason in unknown.items():
        found.setdefault(reason, []).append(COLUMNS[load])
    return found


def _grown(growth: list[HookSlopes]) -> Iterator[str]:
    for entry in growth:
        parts = []
        for name in (*LOADS, PER_LAYER):
            estimate = entry.slopes[name]
            low, high = estimate.interval(CONFIDENCE)
            if low is None or high is None or low <= 0 <= high:
                continue
            if name == PER_LAYER or abs(estimate.point or 0.0) * entry.range[name] >= LEAST_GROWTH_US:
                parts.append(f"{COLUMNS[name]} {estimate.point:+.3g} [{low:+.3g}, {high:+.3g}]")
        if parts:
            yield f"    {entry.hook}: {'; '.join(parts)}"


def _ratio(estimate: Estimate) -> str:
    low, high = estimate.interval(CONFIDENCE)
    if estimate.point is None:
        return "not available"
    return ratio_text(estimate.point, low, high)


def _cores(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
