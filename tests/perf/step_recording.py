"""What recording a step and a hook costs the engine's own thread.

    .venv/bin/python tests/perf/step_recording.py [--rounds N]

A scheduler that does nothing is run with and without the wrappers of ``patches/_step_profile.py``, in turns, and likewise
a hook that does nothing; the difference is the instrument. Prints medians over the rounds, in microseconds.
"""

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

PROFILE = Path(__file__).parents[2] / "patches" / "_step_profile.py"
STEPS = 4000
CALLS = 20_000


def profile_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("profile_under_test", PROFILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scheduler_class(requests: int, mixed: bool) -> type:
    per_request = {str(k): 1 for k in range(requests)}
    if mixed:
        per_request["0"] = 512
    total = sum(per_request.values())
    known = {k: SimpleNamespace(num_computed_tokens=600, num_prompt_tokens=512) for k in per_request}

    class Scheduler:
        requests = known

        def schedule(self) -> SimpleNamespace:
            return SimpleNamespace(
                num_scheduled_tokens=per_request, total_num_scheduled_tokens=total, scheduled_new_reqs=()
            )

        def update_from_output(self, output: object, result: object) -> None: ...

        def get_request_counts(self) -> tuple[int, int]:
            return requests, 0

    return Scheduler


def step_us(scheduler: object) -> float:
    """Median over steps of one schedule() and one update_from_output()."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter_ns()
        scheduler.update_from_output(scheduler.schedule(), None)  # type: ignore[attr-defined]
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e3


class Connector:
    def take_events(self, output: object) -> None: ...


def call_us(connector: Connector) -> float:
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        connector.take_events(None)
    return (time.perf_counter_ns() - start) / CALLS / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENTIC_STEP_LOG_PATH"] = str(Path(folder) / "steps.jsonl")
        print(f"{'':34} {'bare':>8} {'recorded':>9} {'cost':>8}  us, medians of {rounds} rounds")
        for n, mixed in ((4, False), (64, False), (256, False), (64, True)):
            module = profile_module()
            bare, recorded = scheduler_class(n, mixed), scheduler_class(n, mixed)
            module.install_scheduler(recorded)
            pairs = [(step_us(bare()), step_us(recorded())) for _ in range(rounds)]
            show(f"step, {n} requests{', one of them a prompt' if mixed else ', decoding'}", pairs)
        module = profile_module()
        plain, wrapped = Connector(), Connector()
        module.Meter().wrap(wrapped, module.SCHEDULER_HOOKS)
        show("hook", [(call_us(plain), call_us(wrapped)) for _ in range(rounds)])


def show(name: str, pairs: list[tuple[float, float]]) -> None:
    without, with_it = (statistics.median(column) for column in zip(*pairs, strict=True))
    cost = statistics.median(b - a for a, b in pairs)
    print(f"{name:34} {without:8.2f} {with_it:9.2f} {cost:8.2f}", flush=True)


if __name__ == "__main__":
    main()
