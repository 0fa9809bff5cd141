"""A panel as SVG: the drawing without scripts, and what the page's script reads, zooms and lays beside another.

The plot is an SVG inside of the SVG. Its own coordinates are ``ACROSS`` by ``UP``, so another ``viewBox`` shows another part of it.
Points are relative moves: a dot is a line of no length, whose round ends are drawn.
"""

from collections.abc import Sequence

from markupsafe import Markup

from connector_tax.read.report.drill.axes import ACROSS, UP, Axis, upward, written
from connector_tax.read.report.drill.panels import Panel, Times, Trace

# As ``drill.js`` has them: where the plot lies in the panel.
WIDTH, HEIGHT = 360, 128
LEFT, TOP, RIGHT, PLOT_HEIGHT = 48, 6, 352, 98
BEYOND = 9
# Of a letter of 12, as wide as it may be.
HALF_LETTER = 3.6


def drawn(panel: Panel, times: Times) -> Markup:
    """One panel with its caption."""
    across = Axis(0.0, times.end, ACROSS)
    ends = [float(v) for t in panel.traces if t.values.size for v in (t.values.min(), t.values.max())]
    up, top = upward(ends), max(ends, default=0.0)
    last = f"{written(times.end)} s"
    traces = Markup("").join(_path(trace, across, up) for trace in panel.traces)
    return Markup(
        '<figure class="pl" data-k="{key}"><figcaption><b>{title}</b>{of}{legend}</figcaption>'
        '<svg role="img" aria-label="{said}" viewBox="0 0 {w} {h}" data-x="{end}" data-lo="{low}" data-hi="{high}" data-u="{unit}">'
        '<svg x="{left}" y="{top}" width="{width}" height="{height}" viewBox="0 0 {across} {up}" preserveAspectRatio="none">{outside}{traces}</svg>'
        '<text class="x" y="{foot}"><tspan x="{left}">0</tspan><tspan x="{right}">{last}</tspan></text>'
        '<text class="y">{ys}</text></svg></figure>'
    ).format(
        key=panel.key,
        title=panel.title,
        unit=panel.unit,
        of=f" ({panel.unit})" if panel.unit else "",
        legend=_legend(panel.traces),
        said=_said(panel, times),
        w=WIDTH,
        h=HEIGHT,
        end=f"{times.end:.6g}",
        low=f"{up.low:.6g}",
        high=f"{up.high:.6g}",
        across=ACROSS,
        up=UP,
        outside=_outside(times, across),
        traces=traces,
        foot=HEIGHT - 8,
        left=LEFT,
        top=TOP,
        width=RIGHT - LEFT,
        height=PLOT_HEIGHT,
        # Inside of the picture, however long it is.
        right=round(min(RIGHT, WIDTH - HALF_LETTER * len(last))),
        last=last,
        ys=_up_labels(up, top),
    )


def _legend(traces: Sequence[Trace]) -> Markup:
    """What each is, where there is more than one."""
    if len(traces) < 2:
        return Markup("")
    return Markup("").join(
        Markup(' <span class="{look}{colour}">{name}</span>').format(
            look=t.look[0], colour=t.colour, name=f"{t.name}: {t.of:,}" if t.look == "marks" else t.name
        )
        for t in traces
    )


def _said(panel: Panel, times: Times) -> str:
    """For whoever does not see it."""
    found = [f"{panel.title}, over {written(times.end)} s"]
    for trace in panel.traces:
        if trace.values.size:
            low, high = written(float(trace.values.min())), written(float(trace.values.max()))
            found.append(f"{trace.name} from {low} to {high} {panel.unit}".rstrip())
        else:
            found.append(f"{trace.of:,} {trace.name}")
    return "; ".join(found)


def _path(trace: Trace, across: Axis, up: Axis) -> Markup:
    xs = [across.place(float(v)) for v in trace.at]
    ys = [UP - up.place(float(v)) for v in trace.values] if trace.values.size else [0] * len(xs)
    if trace.look == "line":
        xs, ys = _without_flats(xs, ys)
    steps = zip(_differences(xs), _differences(ys), strict=True)
    moves = "".join(_move(trace.look, dx, dy) for dx, dy in steps)
    # The first move begins a path wherever it goes; a line's goes on from there without a letter.
    return Markup('<path class="{look}{colour}" data-n="{name}" d="m{moves}"/>').format(
        look=trace.look[0], colour=trace.colour, name=trace.name, moves=moves[1:]
    )


def _without_flats(xs: list[int], ys: list[int]) -> tuple[list[int], list[int]]:
    """A line without the points inside of its level stretches, which draw nothing."""
    inner = [False, *(a == b == c for a, b, c in zip(ys, ys[1:], ys[2:], strict=False)), False]
    kept = [k for k in range(len(ys)) if not inner[k]]
    return [xs[k] for k in kept], [ys[k] for k in kept]


def _differences(places: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *places[:-1]], places, strict=True)]


def _move(look: str, dx: int, dy: int) -> str:
    to = f"{dx}{dy}" if dy < 0 else f"{dx} {dy}"
    # A mark hangs from the top, since its request has no value.
    return {"dots": f"m{to}h0", "line": f"l{to}", "marks": f"m{dx} 0v60v-60"}[look]


def _outside(times: Times, across: Axis) -> Markup:
    """What lies before and after the window, shaded."""
    begin, end = (across.place(min(max(t, 0.0), times.end)) for t in (times.window_start, times.window_end))
    # Beyond the plot on all sides: beside another cell more of it may be shown than there is.
    return Markup('<path class="o" d="M0 {t}h{a}v{h}H0zM{b} {t}H{w}v{h}H{b}z"/>').format(
        a=begin, b=end, t=-BEYOND * UP, h=2 * BEYOND * UP, w=BEYOND * ACROSS
    )


def _up_labels(axis: Axis, top: float) -> Markup:
    """Zero and the ends of what is drawn; the page's script puts ticks in their place."""
    shown = sorted({0.0, axis.low, top})
    return Markup("").join(
        Markup('<tspan x="{x}" y="{y}">{label}</tspan>').format(
            x=LEFT - 5, y=round(TOP + PLOT_HEIGHT * (1 - axis.place(v) / UP)) + 4, label=written(v)
        )
        for v in shown
    )
