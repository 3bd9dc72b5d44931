"""References that are refused: the place, the code, the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import as_json, cuirc, fails

HEAD = """\
import torch
import torch.nn.functional as F


def attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    s = q @ k.mT * q.shape[-1] ** -0.5
"""
FAILED, UNSUPPORTED = 1, 4


@dataclass(frozen=True, slots=True)
class Wrong:
    """`line`: the line that the message points at, 0 for none. `text`: the whole file, or what follows HEAD."""

    name: str
    text: str
    code: str
    exit_code: int
    line: int
    says: str

    @property
    def data(self) -> bytes:
        return (HEAD + self.text if self.text.startswith("    ") else self.text).encode()


WRONG = (
    Wrong("not_python", "def attention(q, k, v:\n    return q\n", "CU470", FAILED, 1, "'(' was never closed"),
    Wrong("null_bytes", "x = 1\n\0\n", "CU470", FAILED, 1, "null bytes"),
    Wrong("empty", "", "CU472", FAILED, 1, "no function `attention`"),
    Wrong("no_function", "attention = 3\n", "CU472", FAILED, 1, "`attention` is not a function"),
    Wrong("two_arguments", "def attention(q, k):\n    return q\n", "CU472", FAILED, 1, "does not take q, k, v"),
    Wrong("import_fails", "import math\nimport no_such_module\n", "CU471", FAILED, 2, "No module named 'no_such_module'"),
    Wrong("exits", "raise SystemExit(3)\n", "CU471", FAILED, 1, "SystemExit: 3"),
    Wrong(
        "extra_inputs_raise", "def extra_inputs(shape, device):\n    return {'a': 1 / 0}\n\n\ndef attention(q, k, v, a):\n"
        "    return q\n", "CU473", FAILED, 2, "division by zero",
    ),
    Wrong(
        "extra_inputs_of_another_type", "def extra_inputs(shape, device):\n    return 3\n\n\ndef attention(q, k, v):\n"
        "    return q\n", "CU473", FAILED, 1, "returns int, not a dict",
    ),
    Wrong("raises", "    raise ValueError('no such luck')\n", "CU474", FAILED, 8, "ValueError: no such luck"),
    Wrong("raises_no_exception", "    raise BaseException('x')\n", "CU474", FAILED, 8, "BaseException: x"),
    Wrong("ends_a_generator", "    raise GeneratorExit\n", "CU474", FAILED, 8, "GeneratorExit: no message"),
    Wrong("import_raises_no_exception", "raise BaseException('x')\n", "CU471", FAILED, 1, "BaseException: x"),
    Wrong(
        "extra_inputs_raise_no_exception", "def extra_inputs(shape, device):\n    raise GeneratorExit\n\n\n"
        "def attention(q, k, v, a):\n    return q\n", "CU473", FAILED, 2, "GeneratorExit",
    ),
    Wrong(
        "instance_raises_no_exception", "class attention:\n    def __init__(self):\n        raise BaseException('x')\n",
        "CU472", FAILED, 3, "`attention()` fails: x",
    ),
    Wrong("asserts", "    assert q.shape[2] == 7 > q.shape[2]\n    return s\n", "CU474", FAILED, 8, "AssertionError"),
    Wrong("wrong_shape", "    return (s.softmax(-1) @ v).transpose(1, 2)\n", "CU475", FAILED, 8, "[B, Lq, Hq, D]"),
    Wrong("no_result", "    s.softmax(-1) @ v\n", "CU475", FAILED, 5, "NoneType, not a tensor"),
    Wrong("endless", "def attention(q, k, v):\n    return attention(q, k, v)\n", "CU474", FAILED, 2, "RecursionError"),
    Wrong("two_softmaxes", "    return s.softmax(-1).softmax(-1) @ v\n", "CU485", UNSUPPORTED, 8, "second pass"),
    Wrong(
        "top_k", "    least = s.topk(4, -1).values[..., -1:]\n    return s.masked_fill(s < least, -torch.inf).softmax(-1) @ v\n",
        "CU476", UNSUPPORTED, 8, "`topk`",
    ),
    Wrong("item", "    if s.max().item() > 3:\n        s = s / 2\n    return s @ v\n", "CU477", UNSUPPORTED, 8, "`item`"),
    Wrong("dropout", "    return F.dropout(s.softmax(-1), 0.1) @ v\n", "CU478", UNSUPPORTED, 8, "dropout"),
    Wrong("softmax_over_queries", "    return s.softmax(-2) @ v\n", "CU483", UNSUPPORTED, 8, "query rows"),
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
def test_refused(wrong: Wrong, tmp_path: Path) -> None:
    path = tmp_path / f"{wrong.name}.py"
    path.write_bytes(wrong.data)
    ended = fails(["explain", path], wrong.code, wrong.exit_code)
    assert ended.places[0] == (str(path), wrong.line, wrong.code)
    assert wrong.says in ended.err.splitlines()[0]


def test_an_interrupt_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "interrupt.py"
    path.write_text(HEAD + "    raise KeyboardInterrupt\n", encoding="utf-8")
    ended = cuirc("explain", path)
    assert (ended.code, ended.out, ended.codes) == (130, b"", [])


@pytest.mark.parametrize("name", ["not_python", "raises", "top_k"])
def test_the_same_as_json(name: str, tmp_path: Path) -> None:
    wrong = next(w for w in WRONG if w.name == name)
    path = tmp_path / f"{name}.py"
    path.write_bytes(wrong.data)
    said = as_json(["explain", path])
    (first,) = said["diagnostics"]
    assert (first["code"], first["file"], first["line"]) == (wrong.code, str(path), wrong.line)
    assert wrong.says in first["message"]
    assert said["repeat"].startswith("cuirc explain --diagnostics json ")


def test_adapt_writes_nothing_for_a_reference_that_it_refuses(tmp_path: Path) -> None:
    path, folder = tmp_path / "two.py", tmp_path / "out"
    path.write_text(HEAD + "    return s.softmax(-1).softmax(-1) @ v\n", encoding="utf-8")
    given = ["adapt", path, "-o", folder]
    ended = fails(given, "CU485", UNSUPPORTED)
    assert ended.places == [(str(path), 8, "CU485")]
    assert list(folder.iterdir()) == []
    assert as_json(given)["diagnostics"][0]["code"] == "CU485"  # progress does not spoil it


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in fails(["explain", tmp_path / "none.py"], "CU470", FAILED).err


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    assert "Is a directory" in fails(["explain", tmp_path], "CU470", FAILED).err


def test_another_function_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "several.py"
    path.write_text(HEAD + "    return s.softmax(-1) @ v\n\n\ndef other(q, k, v):\n    return 3\n", encoding="utf-8")
    assert cuirc("explain", path).code == 0
    assert fails(["explain", path, "--function", "other"], "CU475", FAILED).places[0][1] == 11
    ended = fails(["explain", path, "--function", "none"], "CU472", FAILED)
    assert "help: the file defines `attention`, `other`" in ended.err
