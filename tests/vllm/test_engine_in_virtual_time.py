"""Virtual time on real vLLM: what is burnt is found, after the launch it is hidden, and nothing outlives who measures."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from connector_tax.base.documents.identity import GpuDocument
from connector_tax.base.errors import EngineError
from connector_tax.base.records.host import HostCosts, StepCosts
from connector_tax.virtual_time import EngineSpec, Load, VirtualTime, compare, measure_many

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
# On a busy host a longer burn makes the rest of its step dearer, too: others use the caches meanwhile.
BURN_US = 100.0
DEVICE = GpuDocument(
    name="NVIDIA H200",
    compute_capability=(9, 0),
    memory_bytes=150_754_820_096,
    kv_cache_bytes=500_000_000,
    step=StepCosts(4000.0, 9.8, 200.0, 0.02),
    host=HostCosts(),
)
LOAD = Load(requests=400)


@pytest.fixture(scope="module")
def spec(engine_python: str, tiny_model: Path):
    def make(label: str, kv: dict | None = None) -> EngineSpec:
        args = {"max_model_len": 8192, "max_num_batched_tokens": 8192}
        env = {"PYTHONPATH": str(ROOT / "tests" / "vllm" / "plugins")}
        return EngineSpec(label, engine_python, tiny_model, DEVICE, kv, args, env)

    return make


def burning(us: float, how: str, hook: str = "build_connector_meta") -> dict:
    extra = {"hook": hook, "us": us, "how": how}
    return {
        "kv_connector": "ExactBurns",
        "kv_connector_module_path": "exact_burns",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }


def tpot_us(found: VirtualTime) -> float:
    """Of its charged difference, the point."""
    point = found.tax("tpot_p50").difference_us.charged.point
    assert point is not None
    return point


def test_a_burn_counts_as_the_same_burn_as_a_jump_and_is_hidden_after_the_launch(spec) -> None:
    """With what a busy host leaves of it: two cells of this size differ by some 20 us of TPOT."""
    after = "wait_for_save"
    burns = (
        (0, "jump"),
        (BURN_US, "cpu"),
        (BURN_US, "jump"),
        (BURN_US, "cpu", after),
        (BURN_US, "jump", after),
        (BURN_US, "sleep"),
    )
    specs = [spec(" ".join(map(str, burn)), burning(*burn)) for burn in burns]
    sides = measure_many(specs, LOAD, scheduling="sync", starts=1)
    none, burnt, jumped, burnt_after, jumped_after, slept = sides
    assert burnt.facts["async_scheduling"] is False
    truth, hidden = tpot_us(compare(none, jumped)), tpot_us(compare(none, jumped_after))
    assert truth > BURN_US * 0.5  # a longer step has more requests running
    for taken in (burnt, slept):
        assert tpot_us(compare(none, taken)) == pytest.approx(truth, abs=60)
    assert hidden == pytest.approx(0, abs=60)
    assert tpot_us(compare(none, burnt_after)) == pytest.approx(hidden, abs=60)
    found = compare(none, burnt)
    hooks = {h.hook: h for h in found.hooks}
    assert hooks["build_connector_meta"].cpu_us_per_step.point == pytest.approx(BURN_US, abs=20)
    assert hooks["build_connector_meta"].calls_per_step == pytest.approx(1.0, abs=0.05)
    assert hooks["build_connector_meta"].in_virtual_time
    assert abs(hooks["wait_for_save"].cpu_us_per_step.point or 0) < 10
    assert BURN_US * 0.7 < (found.step_us.charged.point or 0) < BURN_US * 2.0
    assert found.others_us_per_step["plain"] < 5


def test_where_the_schedule_runs_ahead_a_burn_is_hidden_in_the_step_before(spec) -> None:
    specs = [spec(how, burning(us, how)) for us, how in ((0, "jump"), (BURN_US, "cpu"))]
    none, burnt = measure_many(specs, LOAD, scheduling="async", starts=1)
    assert burnt.facts["async_scheduling"] is True
    found = compare(none, burnt)
    assert tpot_us(found) == pytest.approx(0, abs=60)
    (burn,) = (h for h in found.hooks if h.hook == "build_connector_meta")
    assert burn.cpu_us_per_step.point == pytest.approx(BURN_US, abs=20) and burn.in_virtual_time


def test_a_connector_that_cannot_be_imported_is_named(spec) -> None:
    wrong = {"kv_connector": "Nobody", "kv_connector_module_path": "no_such_module", "kv_role": "kv_both"}
    with pytest.raises(EngineError, match=r"wrong: .*no_such_module"):
        measure_many([spec("plain"), spec("wrong", wrong)], LOAD, scheduling="sync")


def test_a_python_without_vllm_is_told(spec) -> None:
    plain = spec("plain")
    with pytest.raises(EngineError, match="there is no vLLM in this interpreter"):
        measure_many(
            [EngineSpec("plain", sys.executable, plain.model, DEVICE), plain], LOAD, scheduling="sync"
        )


def test_engines_end_with_who_measures_also_by_kill_9(spec, tmp_path: Path) -> None:
    plain = spec("plain")
    script = tmp_path / "measure.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nimport msgspec\nfrom connector_tax.base.documents.identity import GpuDocument\n"
        "from connector_tax.virtual_time import EngineSpec, Load, measure_many\n"
        "device = msgspec.json.decode(sys.argv[3].encode(), type=GpuDocument)\n"
        "plain = EngineSpec('plain', sys.argv[1], Path(sys.argv[2]), device)\n"
        "measure_many([plain, plain], Load(requests=100000), scheduling='sync', say=lambda s: print(s, flush=True))\n"
    )
    import msgspec

    caller = subprocess.Popen(
        [sys.executable, str(script), plain.python, str(plain.model), msgspec.json.encode(DEVICE).decode()],
    )
    deadline_s = time.monotonic() + 240
    while len(found := _engines(caller.pid)) < 3:  # an importer and two engines
        assert caller.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.2)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    _, alive = psutil.wait_procs(found, timeout=20)
    assert not alive


def _engines(caller: int) -> list[psutil.Process]:
    below = [(p, " ".join(p.cmdline())) for p in psutil.Process(caller).children(recursive=True)]
    return [p for p, line in below if "virtual_time.engine" in line and "supervisor" not in line]
