"""Numbers of tokens and of cards as people and vLLM write them."""

import pytest

from connector_tax.base.units import is_number, token_count


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        (32768, 32768),
        (32768.0, 32768),
        ("32k", 32_000),
        ("25.6k", 25_600),
        ("1M", 1_048_576),
        (" 8k ", 8000),
        (None, None),
        ("-1", None),
        ("auto", None),
    ],
)
def test_a_length_is_read_as_vllm_reads_it(written: object, tokens: int | None) -> None:
    """``human_readable_int_or_auto`` of vLLM 0.32."""
    assert token_count(written) == tokens


@pytest.mark.parametrize("written", [True, "25.6K", "32 k", "k", "many", "-5", 1.5, "²"])
def test_what_vllm_does_not_take_is_no_length(written: object) -> None:
    with pytest.raises(ValueError, match="number of tokens"):
        token_count(written)


def test_a_number_is_written_in_plain_digits() -> None:
    assert is_number("15")
    assert not any(is_number(text) for text in ("²", "١", "-1", "1.0", ""))
