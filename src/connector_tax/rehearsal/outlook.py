"""What a rehearsal tells: duration by phase, and the width of each tax's interval."""

from pathlib import Path

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.files import read_json
from connector_tax.records.cell import PHASE_LABELS
from connector_tax.rehearsal.campaign import PhaseTime
from connector_tax.units import duration_text


def outlook(root: Path, times: list[PhaseTime]) -> str:
    """Lines for a person. A tax smaller than the half-width printed would be lost in the interval."""
    folder = CampaignFolder(root)
    rates = read_json(folder.reference_rates)
    lines = [f"{root}: simulated with the costs of the modelled engine, not with those of yours", ""]
    for t in times:
        lines.append(
            f"phase {PHASE_LABELS[t.phase]:<3} {t.runs} runs, {duration_text(t.cells_s)} of cells and about "
            f"{duration_text(t.overhead_s)} of launches and releases"
        )
    lines.append(f"together about {duration_text(sum(t.total_s for t in times))}, preflight not counted")
    lines.append(f"ref_safe {rates['ref_safe_per_s']:g} req/s, ref_load {rates['ref_load_per_s']:g} req/s")
    if folder.aggregate.exists():
        lines += ["", f"{'headline tax at ref_safe':<28} {'TTFT p90':>22} {'TPOT p90':>22}"]
        lines += _taxes(folder)
    return "\n".join(lines)


def _taxes(folder: CampaignFolder) -> list[str]:
    rows: dict[str, dict[str, str]] = {}
    for tax in read_json(folder.aggregate)["taxes"]:
        if tax["headline"] and tax["reference"] == "ref_safe" and tax["metric"] in ("ttft_p90", "tpot_p90"):
            shown = "unavailable"
            if None not in (tax["point"], tax["low"], tax["high"]):
                shown = f"{tax['point']:+.1%} +- {(tax['high'] - tax['low']) / 2:.1%}"
            rows.setdefault(tax["config"], {})[tax["metric"]] = shown
    return [f"{c:<28} {r.get('ttft_p90', ''):>22} {r.get('tpot_p90', ''):>22}" for c, r in rows.items()]
