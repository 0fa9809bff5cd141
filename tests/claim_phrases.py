"""What the sentences of a page say beside names, numbers and what is worked out of the aggregate: by the place that they stand in.

A sentence may say nothing else, so that one word that is altered is found. What has to be said stands first.
"""

import re
from collections.abc import Sequence

from page_statements import Statement

from connector_tax.read.figures.words import RANDOM_WORDS

EMULATOR = "whose connector costs are set in a file. They show that the pipeline works. They say nothing about real connectors."
LEVELS = (
    "both axes logarithmic, lines set apart sideways a little. Bars are", "intervals", "n =", "requests per point.",
)  # fmt: skip
LOST = "No point, because the cell was overloaded, the percentile falls on a request that failed or was dropped, or too few requests"
PAST = ("At", "is", "without a connector", "one launch each")
# Place -> what has to be said there, and what may be.
PHRASES: tuple[tuple[str, Sequence[str], Sequence[str]], ...] = (
    (r"^head \| ", (), ("Connector tax:",)),
    (r"^head banner[^|]*\| These are", (EMULATOR,), ()),
    (r"^head banner[^|]*\| Put in:", (
        "Put in: the tax that the model of the embedded engine itself gives, from", "launches of each configuration in virtual time.", "intervals of",
        "hold it."), ()),
    (r"^head banner[^|]*\| The device", (
        "The device was a clock: vLLM's API server, engine core, scheduler, KV-cache manager and connectors ran as they are, and in place of the "
        "model's forward pass a step lasted as long as the profile of the", "says"), ("per prompt token,", "per decoding sequence and", "per token of context.")),
    (r"^head banner[^|]*\| It cannot", (
        "It cannot show kernels, memory traffic, transfers of KV between devices, what CUDA graphs really cost",
        "Copies of KV between the device and its host are clocked by stand-ins where a connector makes them."), (
        "nor what a GPU's runner prepares on the host,", "What a GPU's runner does on the host is set to",
        "a sequence before the launch and", "after it.")),
    (r"^head banner[^|]*\| Stand-ins", (
        "Stand-ins for the device, and for copies between it and the host:",
        "What of a connector then runs for real, what is clocked and what is left out: docs/virtual-gpu.md."), ()),
    (r"^head banner[^|]*\| In its", ("In its", "usable cells the clock ran late by at most", "of the device's time;"), (
        "in nine of ten steps the host was done", "in the cell with the least.", "in the cell with the least to spare,", "or more.")),
    (r"^head banner[^|]*\| CPU host", ("not the numbers of a GPU. A connector may cost a different share of a step there.",), ("with", "cores:")),
    (r"^head headline", (), ("On the embedded engine:", "Merely", "interval")),
    (r"^head flags[^|]*\| Flag fallback_lowest_rate:", (
        "no rate that all configurations measured lies below the saturation rate of each;",
        "plain's lowest rate stands in for ref_safe, and the tax may hold queueing"), ()),
    (r"^head flags[^|]*\| Flag fallback_lowest_rate_load:", ("plain is saturated at every measured rate, so the lowest stands in for ref_load",), ()),
    (r"^head flags[^|]*\| Flag non_monotonic_load:", (
        "plain is saturated at a rate below ref_load and keeps up at ref_load itself;", "which criterion fired"), ()),
    (r"^head details.* requests with the connector and ", ("requests with the connector and", "without, of", "prompt and", "output tokens each."), ("It compares", "n")),
    (r"^head details.*\| TPOT p90: ", ("TPOT p90:", "n"), ()),
    (r"^head details.*\| TTFT p90 at ref_load", ("TTFT p90", "n"), ()),
    (r"^head details.*\| TTFT p90 at ref_safe", (), ("connectors", "connector")),
    (r"^head details.*\| The cells behind", ("The cells behind it are", "section Flags says what that means."), ()),
    (r"^head details.* is the largest", (), ("Of the taxes that are", "Of the taxes over blocks that are", "No tax", "No tax over blocks")),
    (r"^head details.*\| Measured ", ("Measured",), ()),
    (r"^head details.*\| The engine did not keep up", ("with the connector or without, so the tax holds queueing as well.",), ()),
    (r"^Outputs \| ", (
        "After its cells", "a fixed set of prompts one by one", "The answers are compared, token by token, with those of plain's first launch"), (
         "other launch of", "other launches of", "repeatable the engine itself is.")),
    (r"^Taxes \| ", (), (
        "the first token from the intended send", "after the first; p90 is", "Where the engine, with the connector or without,")),
    (r"^Taxes / At [^|]*\| At", ("prompt and", "output tokens"), ("At ref_safe,", "At ref_load,")),
    (r"Where the microseconds go / [^|]*\| \d+ hooks", ("hooks that take less are in aggregate.json.",), ()),
    (r"Where the microseconds go / [^|]*\| Mean step", ("Mean step", "plain's", "n"), (
        "Its hooks take", "of a step,", "of that on the CPU;", "on the CPU", "While nobody asks,",
        "of a core: on a host with few cores the engine and the client have that much less.", "The clock ran late by", "of the device's time with it and",
        "with plain, because the waiting thread found no free core, which is this host's, or waited for Python's interpreter lock, which a GPU's host would "
        "do as well: a tax of that size may be either.")),
    (r"/ What recording costs", (), ()),
    (r"/ Taxes at every shape ", ("Taxes at every shape of phases B and B'", "cells)"), ()),
    (r"/ What the host did meanwhile \| ", (), (
        "CPUs:", "of CPU time stolen per cell;", "clocks of", "GPU, per cell: SM clock", "peak temperature", "mean power", "clocks held down by", "cells",
        "readings failed in", "in", "this kernel does not tell their clocks.", "A fixed piece of work took",
        "of CPU time (mean per cell): the part of a latency that the host takes grows about in proportion.", "GPU: none that could be asked.")),
    (r"/ The host over[^|]*\| Not told", ("Not told by this host:",), ()),
    (r"/ Repeated launches / [^|]*\| Plain against", ("Plain against itself:",), (
        "The tax that", "if a connector's launches differ as plain's do.",
        "(standard deviation) beyond what their requests explain", "in", "pairs of launches", "requests each (median)", "from the first of these launches to the last,", "on a line through the blocks (p =",
        "Where a fixed piece of work", ", the latency differed by", "(slope", "on the log scale).", "With that taken out, plain against itself:")),
    (r"^Configurations", ("Plain's second launches (plain_again) have no row:", "cells usable."), ()),
    (r"^Cells", ("cells; latencies in milliseconds with", "intervals"), ()),
    (r"cached blocks[^|]*\| Phase D", (
        "Phase D: a constant number of requests in flight, over a prefix cache that is filled level by level. The slopes of a row are those of one plane "
        "through the medians of its cells, with", "intervals (Student's t over cells). Plain's own decoding step is the control for what changes in the "
        "course of a launch, since the cache only fills while a launch lasts. Slopes and taxes are of one launch each."), ("with what is cached was found", "more than", "excluded", "from", "blocks")),
    (r"/ Its \d+ cells", ("Its", "cells, with the taxes of their medians; n counts requests, or steps, of the side with fewer"), ()),
    # Figures.
    (r"^Figures  fig1\w* title", (), PAST),
    (r"^Figures  fig2\w* title", (), PAST),
    (r"^Figures  fig1\w* caption", ("TTFT p90 against the send rate, phase A", *LEVELS), (LOST, "The title does", RANDOM_WORDS)),
    (r"^Figures  fig2\w* caption", ("TPOT p90 against the send rate, phase A", *LEVELS), (LOST, "The title does", RANDOM_WORDS)),
    (r"^Figures  fig3\w* title", (), ("at", "with the requested rate up to", )),
    (r"^Figures  fig3\w* caption", (
        "Completions per second in the window, phase A, one launch each; both axes are logarithmic.", "n =", "requests per point."), (
        "at which a saturation criterion fired, which need not be throughput.", "Throughput is a count over the window and carries no interval here;",
        "Bars are", "intervals;")),
    (r"^Figures  fig4\w* title", (), ("connectors", "connector")),
    (r"^Figures  fig4\w* caption", ("Tax = percentile with the connector", "phase A shape. Whiskers are", "intervals; n ="), (
        "requests", "requests per point.", "point.", "in percentage points; the report's table of it has the interval.")),
    (r"^Figures  fig5\w* title", (), ("The TTFT tax is", "cells", "prompt and", "output tokens", "at", "over", "blocks")),
    (r"^Figures  fig5\w* caption", ("Tax of TTFT p90 against plain at", "phase B.", "In brackets the", "interval in percent", "hatched where it covers zero", "n ="), (
        "requests", "requests per cell.", "cell.", "of launches as the cell names, else", "the rate in each cell,",
        "where the capacity estimate says that every configuration holds the shape, else a lower one, the same for all configurations,")),
    (r"^Figures  fig6\w* title", (), ("at", "connectors", "connector", "without plain's to hold them against")),
    (r"^Figures  fig6\w* caption", (
        "Distribution of step durations at", "phase A,", "steps without tokens excluded; n =",
        "steps per line. A step runs from the scheduler's entry, or from the end of the step before where the two overlap, to the end of the update with its output."), ("interval",)),
    (r"^Figures  fig7\w* title", (), ()),
    (r"^Figures  fig7\w* caption", (
        "flags = plain vLLM with the connector's settings against plain;", "implementation = the rest. Each part begins where the one before ends;",
        "the dot at its end is its estimate, and the whisker on it the", "interval; one that is narrower than the dot is not seen; n =", "requests per point."), ("In two parts,", "implementation = the rest, with what settings cost")),
    (r"^Figures  fig8\w* title", (), ()),
    (r"^Figures  fig8\w* caption", ("The dashed line is at the sum of the two. Whiskers are", "intervals; n ="), ("requests", "bar.", "requests per bar.")),
    (r"^Figures  fig9\w* title", (), ("connectors", "connector")),
    (r"^Figures  fig9\w* caption", (
        "Phase A", "steps that only decode, means", "schedule() and update_from_output() without the hooks that they call; n =",
        "steps. The five parts add up to the diamond; its whisker is the", "interval of the whole,", "The time of each hook holds"), ()),
)  # fmt: skip


def phrases(s: Statement) -> tuple[Sequence[str], Sequence[str]]:
    """What has to stand in it, and what may."""
    part = " caption" if s.is_caption else " title" if s.section.startswith("Figures ") else ""
    place = f"{s.section}{part} | {s.text}"
    return next(((must, may) for pattern, must, may in PHRASES if re.search(pattern, place)), ((), ()))
