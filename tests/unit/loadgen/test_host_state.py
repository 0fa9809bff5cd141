"""What the kernel says of the host: worked by hand, and against psutil on this one."""

import json
import os
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from connector_tax.run.sampler.sampler import PROC_STAT, HostReader, cpu_ticks, sampling, work_us

# 100 + 10 + 50 + 800 + 20 + 5 + 5 + 10 = 1000; the guests' 30 and 3 are in user and nice already.
STAT = "cpu  100 10 50 800 20 5 5 10 30 3\ncpu0 50 5 25 400 10 2 3 5 15 1\nintr 17 0\nbtime 1763000000\n"


def host(root: Path, *, stat: str | None = STAT, khz: dict[int, str] | None = None) -> HostReader:
    if stat is not None:
        (root / "stat").write_text(stat)
    for core, text in (khz or {}).items():
        folder = root / "cpu" / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(text)
    return HostReader(None, proc_stat=root / "stat", cpus=root / "cpu")


def test_ticks_are_of_all_cores_and_guests_count_once() -> None:
    assert cpu_ticks(STAT) == (1000, 10)


@pytest.mark.parametrize("stat", ["", "\n", "cpu 1 2 3 4 5 6 7\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3 4 5 6 7 x\n"])  # fmt: skip
def test_a_kernel_that_does_not_count_steal_is_not_believed_to_have_none(stat: str) -> None:
    assert cpu_ticks(stat) is None


@pytest.mark.skipif(not PROC_STAT.exists(), reason="no /proc/stat here")
def test_this_hosts_ticks_lie_between_two_readings_of_psutil() -> None:
    def by_psutil() -> tuple[int, int]:
        seconds = psutil.cpu_times()
        names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
        hz = os.sysconf("SC_CLK_TCK")
        return sum(round(getattr(seconds, n) * hz) for n in names), round(seconds.steal * hz)

    reader = HostReader(None)
    before, found, after = by_psutil(), reader.read(), by_psutil()
    reader.close()
    assert found.cpu_ticks is not None and found.steal_ticks is not None
    assert before[0] <= found.cpu_ticks <= after[0]
    assert before[1] <= found.steal_ticks <= after[1]


def test_files_that_are_kept_open_are_read_anew(tmp_path: Path) -> None:
    reader = host(tmp_path, khz={0: "2600000\n"})
    first = reader.read()
    (tmp_path / "stat").write_text(STAT.replace(" 800 ", " 950 "))
    (tmp_path / "cpu" / "cpu0" / "cpufreq" / "scaling_cur_freq").write_text("1200499\n")
    second = reader.read()
    assert (first.cpu_ticks, first.cpu_mhz) == (1000, (2600,))
    assert (second.cpu_ticks, second.cpu_mhz) == (1150, (1200,))


def test_cores_stand_in_order_and_those_that_do_not_say_are_left_out(tmp_path: Path) -> None:
    reader = host(tmp_path, khz={10: "3000000\n", 2: "2000000\n", 0: "1000000\n", 1: "<unknown>\n"})
    assert reader.read().cpu_mhz == (1000, 2000, 3000)


def test_a_core_that_cannot_be_read_any_more_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "cpu" / "cpu1" / "cpufreq" / "scaling_cur_freq").mkdir(
        parents=True
    )  # opens, and fails to read
    assert host(tmp_path, khz={0: "1000000\n"}).read().cpu_mhz == (1000,)


def test_what_a_virtual_machine_does_not_expose_is_absent(tmp_path: Path) -> None:
    told = msgspec.to_builtins(host(tmp_path).read())
    assert told == {"cpu_ticks": 1000, "steal_ticks": 10}
    (tmp_path / "stat").unlink()
    assert msgspec.to_builtins(host(tmp_path, stat=None).read()) == {}


def test_a_reading_holds_what_the_work_took_since_the_one_before(tmp_path: Path) -> None:
    reader = host(tmp_path)
    reader.time_work()
    reader.time_work()
    assert [len(reader.read().cpu_work_us) for _ in range(2)] == [2, 0]


def test_more_work_takes_more_cpu_time_and_waiting_takes_none() -> None:
    few, many = (min(work_us(turns) for _ in range(5)) for turns in (2_000, 40_000))
    assert many > 5 * few > 0


def test_every_sample_holds_the_host_also_where_the_engine_does_not_answer(tmp_path: Path) -> None:
    out = tmp_path / "metrics.jsonl"
    with sampling("http://127.0.0.1:9", out, 0.1):
        time.sleep(0.5)
    lines = out.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    # A cell's share is cut out by the first `"t_ns":` of a line.
    assert all(line.startswith('{"t_ns":') for line in lines)
    assert not any(r["ok"] or "gpu" in r["host"] for r in rows)
    ticks = [r["host"]["cpu_ticks"] for r in rows]
    assert ticks == sorted(ticks) and ticks[-1] > ticks[0] > 0
