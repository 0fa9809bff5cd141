"""Which cores each of several engines has with its load generator: the same number for each, none shared, on the card's NUMA node."""

from collections.abc import Sequence

from connector_tax.run.loadgen.placement import Core

# Cores that differ by more are of two kinds, and each place gets some of either.
ONE_KIND = 0.1


def share_of(
    cores: tuple[Core, ...], place: int, of: int, card_nodes: Sequence[int | None] = ()
) -> tuple[Core, ...]:
    """The cores of ``place`` among ``of``; all of them where there is one place.

    Args:
        card_nodes: NUMA node of each place's first card. Where one is not known, places are spread over the nodes in their order.
    """
    if of == 1 or not cores:
        return cores
    numbers = sorted({core.numa for core in cores})
    known = [node for node in card_nodes if node in numbers]
    node_of = known if len(known) == of else [numbers[k * len(numbers) // of] for k in range(of)]
    # As many for each place, wherever it is: cells of different places may be compared.
    each = min(sum(c.numa == node for c in cores) // node_of.count(node) for node in set(node_of))
    beside = [k for k in range(of) if node_of[k] == node_of[place]]
    own = [core for core in cores if core.numa == node_of[place]]
    index = beside.index(place)
    if _differ(own):
        fastest_first = sorted(own, key=lambda core: (-core.performance, core.cpus))
        return tuple(sorted(fastest_first[index :: len(beside)][:each], key=lambda core: core.cpus))
    return tuple(own[index * each : (index + 1) * each])


def _differ(cores: Sequence[Core]) -> bool:
    speeds = [core.performance for core in cores]
    return max(speeds) - min(speeds) > ONE_KIND * max(speeds)
