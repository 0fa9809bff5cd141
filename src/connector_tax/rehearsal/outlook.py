"""What a rehearsal tells: duration by phase, and the width of each tax's interval."""

from pathlib import Path

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.files import read_json
from connector_tax.records.cell import phase_label
from connector_tax.rehearsal.campaign import PhaseTime
from connector_tax.units import duration_text


def outlook(root: Path, times: list[PhaseTime]) -> str:
    """Lines for a person. A tax smaller than the half-width printed would be lost in the interval."""
    folder = CampaignFolder(root)
    rates = read_json(folder.reference_rates)
    lines = [f"{root}: simulated with the costs of the modelled engine, not with those of yours", ""]
    for t in times:
        lines.append(
            f"phase {phase_label(t.phase):<3} {t.runs} runs, {duration_text(t.cells_s)} of cells and about "
            f"{duration_text(t.overhead_s)} of launches and releases"
        )
    together_s = sum(t.total_s for t in times)
    lines.append(f"together about {duration_text(together_s)}, preflight not counted")
    budget_h = read_json(folder.campaign_file)["config"]["analysis"]["time_budget_h"]
    if together_s > budget_h * 3600:
        lines.append(
            f"That is more than analysis.time_budget_h ({budget_h:g} h). Cells that cannot complete cell.min_completed "
            "in time run to cell.max_cell_s: shorten the longest shapes, or lower one of the two."
        )
    if not rates["b_prime_needed"]:
        lines.append("Phase B' is not needed: ref_load equals ref_safe")
    lines.append(f"ref_safe {rates['ref_safe_per_s']:g} req/s, ref_load {rates['ref_load_per_s']:g} req/s")
    if folder.aggregate.exists():
        lines += ["", f"{'headline tax at ref_safe':<28} {'TTFT p90':>22} {'TPOT p90':>22}"]
        lines += _taxes(folder)
        lines.append("+- is the 95 % interval of one launch each; what differs between launches comes on top")
        lines += ["", *power_lines(folder.aggregate)]
    size_mib = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / 2**20
    lines += [
        "",
        f"{root} holds {size_mib:.0f} MiB of simulated results; remove it when you have seen enough",
    ]
    return "\n".join(lines)


def power_lines(aggregate: Path) -> list[str]:
    """The smallest taxes that would be found, of a rehearsed campaign or of an earlier one that was measured."""
    found = read_json(aggregate).get("power", [])
    if not found:
        return [f"{aggregate}: no tax at ref_safe, so nothing is known of what could be found"]
    blocks = next((list(row["by_blocks"]) for row in found if row["by_blocks"]), [])
    heads = "".join(f"{n + ' blocks':>12}" for n in blocks)
    lines = [f"{'smallest tax found 4 times of 5':<38} {'one launch':>12}{heads}"]
    words = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
    for row in found:
        values = [row["one_launch"], *(row["by_blocks"] or dict.fromkeys(blocks)).values()]
        shown = "".join(f"{'unknown' if v is None else f'{v:.1%}':>12}" for v in values)
        lines.append(f"{row['config']:<28} {words[row['metric']]:<9} {shown}")
    if not blocks:
        lines.append(
            "With repeats (config) it is also known what differs between launches, and what blocks would find"
        )
    return lines


def _taxes(folder: CampaignFolder) -> list[str]:
    rows: dict[str, dict[str, str]] = {}
    for tax in read_json(folder.aggregate)["taxes"]:
        if tax["headline"] and tax["reference"] == "ref_safe" and tax["metric"] in ("ttft_p90", "tpot_p90"):
            shown = "unavailable"
            if None not in (tax["point"], tax["low"], tax["high"]):
                shown = f"{tax['point']:+.1%} +- {(tax['high'] - tax['low']) / 2:.1%}"
            rows.setdefault(tax["config"], {})[tax["metric"]] = shown
    return [f"{c:<28} {r.get('ttft_p90', ''):>22} {r.get('tpot_p90', ''):>22}" for c, r in rows.items()]
