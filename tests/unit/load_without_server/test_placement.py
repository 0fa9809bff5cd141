"""The client gets cores of its own, fastest first; the engine gets the others."""

from pathlib import Path

from connector_tax.run.loadgen.descriptors import Core, discover, place
from connector_tax.run.measure.launch import share_of


def fake_sysfs(root: Path, *, sockets: int = 2, cores: int = 4, threads: int = 2) -> Path:
    """Numbered as Intel does: CPU n and CPU n + (all cores) are siblings. Core 5 is the fastest, on node 1."""
    physical = sockets * cores
    cpus = root / "devices" / "system" / "cpu"
    for cpu in range(physical * threads):
        core = cpu % physical
        topology = cpus / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        siblings = ",".join(str(core + physical * t) for t in range(threads))
        (topology / "core_cpus_list").write_text(siblings + "\n")
        (cpus / f"cpu{cpu}" / "acpi_cppc").mkdir()
        (cpus / f"cpu{cpu}" / "acpi_cppc" / "highest_perf").write_text("200\n" if core == 5 else "166\n")
    (cpus / "online").write_text(f"0-{physical * threads - 1}\n")
    for socket in range(sockets):
        node = root / "devices" / "system" / "node" / f"node{socket}"
        node.mkdir(parents=True)
        first = socket * cores
        ranges = [f"{first + physical * t}-{first + physical * t + cores - 1}" for t in range(threads)]
        (node / "cpulist").write_text(",".join(ranges) + "\n")
    return root


ALL = set(range(16))


def test_two_sockets_with_hyper_threads_are_eight_cores(tmp_path: Path) -> None:
    found = discover(fake_sysfs(tmp_path), ALL)
    assert [c.cpus for c in found] == [(n, n + 8) for n in range(8)]
    assert [c.numa for c in found] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [c.performance for c in found] == [200.0 if n == 5 else 166.0 for n in range(8)]


def test_those_who_stamp_are_on_the_fastest_core_and_the_client_stays_on_its_node(tmp_path: Path) -> None:
    plan = place(discover(fake_sysfs(tmp_path), ALL), n_workers=2)
    assert plan.workers == ((5, 13), (4, 12))
    assert plan.coordinator == (6, 14)
    assert plan.engine == (0, 1, 2, 3, 7, 8, 9, 10, 11, 15)
    assert plan.warning is None


def test_workers_spill_over_to_the_next_node(tmp_path: Path) -> None:
    plan = place(discover(fake_sysfs(tmp_path), ALL), n_workers=5)
    assert plan.workers == ((5, 13), (4, 12), (6, 14), (7, 15), (0, 8))
    assert plan.coordinator == (1, 9)
    assert plan.engine == (2, 3, 10, 11)


def test_nobody_shares_a_physical_core(tmp_path: Path) -> None:
    plan = place(discover(fake_sysfs(tmp_path), ALL), n_workers=3)
    roles = [plan.coordinator, *plan.workers, plan.engine]
    assert sorted(cpu for role in roles for cpu in role) == sorted(ALL)
    for n in range(8):
        assert sum(n in role and n + 8 in role for role in roles) == 1


def test_a_cgroup_that_allows_a_few_cpus_is_all_there_is(tmp_path: Path) -> None:
    found = discover(fake_sysfs(tmp_path), {0, 8, 1, 2, 5})
    assert [c.cpus for c in found] == [(0, 8), (1,), (2,), (5,)]


def test_too_few_cores_pin_nobody_and_say_so() -> None:
    plan = place((Core(0, (0,), 1.0), Core(0, (1,), 1.0)), n_workers=1)
    assert (plan.coordinator, plan.workers, plan.engine) == ((), ((),), ())
    assert plan.warning == (
        "client and engine share cores: 2 physical cores, 4 wanted (2 for the client, 2 for the engine)"
    )


def test_a_host_that_tells_little_is_still_understood(tmp_path: Path) -> None:
    """No topology folder, no NUMA, no performance figures: every CPU is a core of its own."""
    cpus = tmp_path / "devices" / "system" / "cpu"
    for cpu in range(3):
        (cpus / f"cpu{cpu}").mkdir(parents=True)
    (cpus / "online").write_text("0-2\n")
    assert discover(tmp_path, {0, 1, 2}) == tuple(Core(0, (n,), 0.0) for n in range(3))


def test_this_host_is_understood() -> None:
    assert sum(len(core.cpus) for core in discover()) >= 1


def test_an_engine_on_another_host_needs_no_core_of_this_one() -> None:
    plan = place((Core(0, (0,), 1.0), Core(0, (1,), 2.0)), n_workers=1, engine_cores=0)
    assert (plan.coordinator, plan.workers, plan.engine, plan.warning) == ((0,), ((1,),), (), None)


def test_a_host_that_does_not_tell_its_cores_pins_nothing_and_says_so(tmp_path: Path) -> None:
    """A sandbox without ``/sys``, where each launch ended in a traceback."""
    found = discover(tmp_path, ALL)
    plan = place(share_of(found, 0, 2), n_workers=1)
    assert (plan.engine, plan.coordinator) == ((), ())
    assert plan.warning is not None and plan.warning.startswith(
        "client and engine share cores: 0 physical cores"
    )
