"""What the connector framework costs, free of what launches differ by: the no-op connector taken out of a running vLLM.

    ENGINE_PYTHON=... TINY_MODEL=... .venv/bin/python tests/perf/paired_toggling.py [--pairs 24]
    ENGINE_PYTHON=... MODEL_FOLDER=... .venv/bin/python tests/perf/paired_toggling.py --config config/virtual-gpu-sync.yaml --rate 8

Research, for vLLM 0.32 alone, and only right because nothing is ever transferred. Two launches: one in which the connector
is taken out and put back, and one in which the switch is thrown and nothing else happens, which must come out as nothing.
Compare with ``framework_tax.py``, which launches both afresh. What a configuration decides at start (engine settings, the
executor's aggregator of connector outputs) stays on in both states and is not in the number.
"""

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
from slices import Paired, Slices, paired
from toggled_steps import paired_steps

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.target import target_of
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import measure_cell

SETTLE_S = 0.3


def toggle(
    campaign: Path, pairs: int, slice_s: float, rate_per_s: float, shape: Shape | None, *, nothing: bool
) -> list[Paired | str]:
    """What a client sees, and where it is in a step."""
    config = load_campaign(campaign)
    duration_s = 2 * pairs * (slice_s + SETTLE_S)
    cell = replace(
        cells_of(config, "plain", "a")[0],
        rate_per_s=rate_per_s,
        **({} if shape is None else asdict(shape)),
        duration_s=duration_s,
        max_cell_s=duration_s + 60,
    )
    with tempfile.TemporaryDirectory() as name:
        off = Path(name) / "off"
        connector = msgspec.structs.replace(
            config.connector("noop_connector"),
            id="toggled",
            kv_transfer_config={
                "kv_connector": "ToggledConnector",
                "kv_connector_module_path": "toggled_connector",
                "kv_role": "kv_both",
            },
            env={
                "PYTHONPATH": str(Path(__file__).parent),
                "TOGGLED_CONNECTOR_OFF": str(off),
                "TOGGLED_CONNECTOR_NOTHING": str(int(nothing)),
            },
        )
        step_log = Path(name) / "steps" / "engine_step.jsonl"
        request = LaunchRequest(config.engine, connector, Path(name) / "run", step_log=step_log)
        with running_engine(request) as engine:
            engine.wait_ready()
            with Slices(off, slice_s, SETTLE_S) as slices:
                outcome = measure_cell(cell, target_of(engine.base_url, engine.model))
        failed = sum(r.status != "ok" for r in outcome.requests)
        if failed:
            raise SystemExit(
                f"{failed} of {len(outcome.requests)} requests failed; the switch is not harmless"
            )
        return [paired(outcome.requests, slices), *paired_steps(step_log, slices, Path(name) / "steps.jsonl")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=PROJECT_ROOT / "config" / "vllm-cpu.yaml")
    parser.add_argument("--pairs", type=int, default=24, help="pairs of slices")
    parser.add_argument("--slice", type=float, default=2.5, help="seconds")
    parser.add_argument("--rate", type=float, default=16.0, help="requests per second")
    parser.add_argument(
        "--shape", type=Shape.parse, help="prompt and output tokens, as 256x16; default: Phase A's"
    )
    args = parser.parse_args()
    for nothing in (False, True):
        what = "the switch alone" if nothing else "the no-op connector"
        print(f"{what}, slices of {args.slice:g} s", flush=True)
        for line in toggle(args.config, args.pairs, args.slice, args.rate, args.shape, nothing=nothing):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
