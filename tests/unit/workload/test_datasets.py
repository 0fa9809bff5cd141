"""A file of prompts is sent as it stands, line after line, and a bad line is named."""

import json
from pathlib import Path

import pytest

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import Target
from connector_tax.run.workload.prompts import DatasetRenderer, read_prompts

TARGET = Target("h", 80, "m")
SPEC = CellSpec("a", 1.0, 0, 0, "fixed", 1, 1, 1, 10, 1, 4, 7, 5, 1000, prompts="p.jsonl")


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_arrivals_take_the_lines_in_turn(tmp_path: Path) -> None:
    lines = [
        '{"prompt": "zw\u00f6lf \\"x\\"", "output_tokens": 3}',
        "",
        '{"prompt": [7, 8, 9], "output_tokens": 2}',
    ]
    renderer = DatasetRenderer(SPEC, TARGET, read_prompts(written(tmp_path / "p", *lines)))
    bodies = [json.loads(renderer.render(seq).partition(b"\r\n\r\n")[2]) for seq in range(3)]
    assert [b["prompt"] for b in bodies] == ['zw\u00f6lf "x"', [7, 8, 9], 'zw\u00f6lf "x"']
    assert [b["max_tokens"] for b in bodies] == [3, 2, 3]
    assert [renderer.lengths(seq) for seq in range(2)] == [(None, 3), (3, 2)]


def test_content_length_counts_bytes(tmp_path: Path) -> None:
    prompts = read_prompts(written(tmp_path / "p", '{"prompt": "\u00e4\u00f6", "output_tokens": 3}'))
    head, _, body = DatasetRenderer(SPEC, TARGET, prompts).render(0).partition(b"\r\n\r\n")
    assert int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]) == len(body)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "line 2"),
        ('{"prompt": "a"}', "nothing else"),
        ('{"prompt": "", "output_tokens": 1}', "not an empty one"),
        ('{"prompt": [1, true], "output_tokens": 1}', "token ids"),
        ('{"prompt": "a", "output_tokens": 0}', "0 is not"),
        ('["a"]', "nothing else"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path / "p", '{"prompt": "a", "output_tokens": 1}', line)
    with pytest.raises(ConfigError, match="line 2") as error:
        read_prompts(path)
    assert what in str(error.value)


def test_a_file_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none")
    with pytest.raises(ConfigError, match="holds nothing"):
        read_prompts(written(tmp_path / "p", ""))
