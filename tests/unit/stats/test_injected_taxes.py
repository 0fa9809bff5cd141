"""The model's taxes beside those that were found: each interval holds it or not, and equal reference rates count once."""

import numpy as np
from specs import spec_of

from connector_tax.base.documents.rates import PutInFile, PutInTax, ReferenceRatesFile
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.injected import injected_taxes
from connector_tax.read.stats.taxes import Tax

DRAWS = np.linspace(0.2, 0.4, 1001)


def found(config: str, rate_per_s: float = 2.0, *, known: bool = True) -> Tax:
    estimate = Estimate(0.3, DRAWS, 80) if known else unavailable("its cell died")
    return Tax(config, "ref_safe", "a", spec_of(rate_per_s, 256, 16), "ttft_p90", estimate, 80, 80)


def model(*taxes: tuple[str, float | None], rate_per_s: float = 2.0) -> PutInFile:
    rows = tuple(
        PutInTax(
            config=c, metric="ttft_p90", rate_per_s=rate_per_s, input_tokens=256, output_tokens=16, tax=t
        )
        for c, t in taxes
    )
    return PutInFile(campaign="c", launches=40, model_file="m.yaml", model_sha256="0" * 64, taxes=rows)


def rates(safe: float, load: float) -> ReferenceRatesFile:
    return ReferenceRatesFile(ref_safe_per_s=safe, ref_load_per_s=load, b_prime_needed=False)


def test_an_interval_holds_the_models_tax_or_not() -> None:
    file = model(("in", 0.25), ("above", 0.45), ("below", 0.1), ("lost", 0.3), ("endless", None))
    chosen = [found("in"), found("above"), found("below"), found("lost", known=False), found("endless")]
    value = injected_taxes(file, rates(2.0, 4.0), chosen, 0.95)
    assert {r.config: r.held for r in value.taxes} == {
        "in": True,
        "above": False,
        "below": False,
        "lost": None,
        "endless": None,
    }
    assert (value.asked, value.held, value.launches) == (3, 1, 40)


def test_one_rate_under_two_names_is_counted_once() -> None:
    value = injected_taxes(model(("x", 0.3)), rates(2.0, 2.0), [found("x")], 0.95)
    assert [r.reference for r in value.taxes] == ["ref_safe", "ref_load"] and (value.asked, value.held) == (
        1,
        1,
    )


def test_a_tax_at_another_rate_or_shape_is_not_set_beside_it() -> None:
    assert injected_taxes(model(("x", 0.3)), rates(2.0, 4.0), [found("x", 4.0)], 0.95).asked == 0  # type: ignore[union-attr]
    other = Tax("x", "ref_safe", "b", spec_of(2.0, 512, 16), "ttft_p90", Estimate(0.3, DRAWS, 80), 80, 80)
    assert injected_taxes(model(("x", 0.3)), rates(2.0, 4.0), [other], 0.95).asked == 0  # type: ignore[union-attr]


def test_without_a_model_or_rates_there_is_nothing() -> None:
    assert injected_taxes(None, rates(2.0, 4.0), [found("x")], 0.95) is None
    assert injected_taxes(model(("x", 0.3)), None, [found("x")], 0.95) is None
