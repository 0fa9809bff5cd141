"""Cores of engines side by side: none shared, as many for each, on the card's node."""

from pathlib import Path

import pytest

from connector_tax.run.loadgen.descriptors import Core, place
from connector_tax.run.measure.launch import share_of
from connector_tax.run.measure.preflight import cpu_by_session


def host(*nodes: int, performance: float = 100.0) -> tuple[Core, ...]:
    """So many cores on each node, each with two hyper-threads."""
    numa = [node for node, many in enumerate(nodes) for _ in range(many)]
    return tuple(Core(node, (2 * k, 2 * k + 1), performance) for k, node in enumerate(numa))


def cpus(cores: tuple[Core, ...]) -> set[int]:
    return {cpu for core in cores for cpu in core.cpus}


def shares(cores: tuple[Core, ...], of: int, nodes: tuple[int | None, ...] = ()) -> list[tuple[Core, ...]]:
    return [share_of(cores, k, of, nodes) for k in range(of)]


@pytest.mark.parametrize(("nodes", "of", "each"), [((9, 8), 2, 8), ((7,), 3, 2), ((8, 8), 3, 4)])
def test_nobody_shares_a_core_and_each_has_as_many(nodes: tuple[int, ...], of: int, each: int) -> None:
    found = shares(host(*nodes), of)
    assert [len(s) for s in found] == [each] * of
    assert sum(len(cpus(s)) for s in found) == len(set().union(*map(cpus, found)))
    assert all(len({core.numa for core in s}) == 1 for s in found)


def test_one_engine_has_them_all() -> None:
    assert share_of(host(4, 4), 0, 1) == host(4, 4)


def test_a_place_is_on_the_node_of_its_card() -> None:
    """Cards 0 and 2 hang on the second socket."""
    found = shares(host(8, 8), 4, (1, 0, 1, 0))
    assert [{core.numa for core in s} for s in found] == [{1}, {0}, {1}, {0}]


def test_cores_of_two_kinds_are_dealt_out() -> None:
    fast, slow = host(4, performance=100.0), host(8, performance=60.0)[4:]
    found = shares((*fast, *slow), 2)
    assert [sorted(core.performance for core in s) for s in found] == [[60.0, 60.0, 100.0, 100.0]] * 2
    assert not cpus(found[0]) & cpus(found[1])


def test_too_few_cores_pin_nothing() -> None:
    """As with one engine: client and engine then share what there is, and cells say so."""
    (one, _) = shares(host(2), 2)
    assert place(one, 1).engine == () and place(one, 1).warning is not None
    (none, _) = shares(host(1), 2)
    assert none == () and place(none, 1).warning is not None


@pytest.mark.parametrize(("content", "said"), [("1\n", True), ("0\n", False), (None, False)])
def test_a_kernel_that_shares_by_session_is_named(tmp_path: Path, content: str | None, said: bool) -> None:
    setting = tmp_path / "sched_autogroup_enabled"
    if content is not None:
        setting.write_text(content)
    note = cpu_by_session(setting)
    assert (note is not None and "sched_autogroup_enabled=0" in note) is said
