"""Wrong inputs of every kind end with a code and a place, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cubridge.frontend.reference.load import Reference, load_reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_expr

GOOD = "import torch\ndef attention(q, k, v):\n    return torch.softmax(q @ k.mT, -1) @ v\n"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "reference.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error_of(path: Path, function: str | None = None) -> str:
    with pytest.raises(CuError) as caught:
        trace(load_reference(path, function))
    return str(caught.value).replace(str(path), "reference.py")


def test_a_good_file_loads(tmp_path: Path) -> None:
    reference = load_reference(written(tmp_path, GOOD))
    assert reference.name == "attention"
    assert reference.parameters() == ("q", "k", "v")


def test_a_missing_file(tmp_path: Path) -> None:
    assert "CU470" in error_of(tmp_path / "nothing.py")


@pytest.mark.parametrize(
    ("text", "first_line"),
    [
        ("def attention(q, k, v:\n    return v\n", "reference.py:1:14: error[CU470]: not Python: '(' was never closed"),
        ("def attention(q, k, v)\n    return v\n", "reference.py:1:23: error[CU470]: not Python: expected ':'"),
        (b"x = 'a\xff'\n", "error[CU470]: not Python: (unicode error)"),
        (b"x = 1\x00\n", "error[CU470]: not Python: source code string cannot contain null bytes"),
        ("import nothing_of_this_name\n", "reference.py:1:1: error[CU471]: importing it fails: ModuleNotFoundError"),
        ("a = 1\nb = a / 0\n", "reference.py:2:5: error[CU471]: importing it fails: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "reference.py:1:1: error[CU471]: importing it fails: SystemExit"),
        ("x = 1\n", "reference.py:1:1: error[CU472]: no function `attention`"),
        ("attention = 3\n", "reference.py:1:1: error[CU472]: `attention` is not a function"),
        ("def attention(q):\n    return q\n", "reference.py:1:1: error[CU472]: `attention` does not take q, k, v"),
        ("", "reference.py:1:1: error[CU472]: no function `attention`"),
        (GOOD + "extra_inputs = 3\n", "reference.py:1:1: error[CU473]: `extra_inputs` is not a function"),
        (
            GOOD + "def extra_inputs(shape, device):\n    return shape.length\n",
            "reference.py:5:12: error[CU473]: `extra_inputs` fails: AttributeError",
        ),
        (
            GOOD + "def extra_inputs(shape, device):\n    return [1]\n",
            "reference.py:4:1: error[CU473]: `extra_inputs` returns list, not a dict",
        ),
        (
            GOOD.replace("v)", "v, w)", 1) + "def extra_inputs(shape, device):\n    return {'w': 'text'}\n",
            "reference.py:4:1: error[CU473]: `extra_inputs` gives str for `w`, not a tensor or a number",
        ),
        (
            "def attention(q, k, v):\n    return v[:, :, :, 1:].nothing\n",
            "reference.py:2:12: error[CU474]: the reference fails: AttributeError",
        ),
        (
            "def helper(x):\n    raise ValueError('no')\n\ndef attention(q, k, v):\n    return helper(q)\n",
            "reference.py:2:5: error[CU474]: the reference fails: ValueError: no",
        ),
        (
            "def attention(q, k, v):\n    return attention(q, k, v)\n",
            "error[CU474]: the reference fails: RecursionError",
        ),
        (
            "def attention(q, k, v, w):\n    return q\n",
            "reference.py:1:24: error[CU473]: nothing gives the argument `w`",
        ),
        (
            "def attention(q, k, v, *,\n    w):\n    return q\n",
            "reference.py:2:5: error[CU473]: nothing gives the argument `w`",
        ),
        (
            "def attention(*, q, k, v):\n    return q\n",
            "reference.py:1:1: error[CU472]: `attention` does not take q, k, v",
        ),
        (
            "def attention(k, q, v):\n    return q\n",
            "reference.py:1:1: error[CU472]: `attention` takes k, q, v in this",
        ),
        (
            "import torch\nattention = torch.nn.functional.scaled_dot_product_attention\n",
            "error[CU472]: `attention` is no Python",
        ),
        ("def attention(q, k, v):\n    yield q\n", "reference.py:1:1: error[CU472]: `attention` returns no value when"),
        (
            "async def attention(q, k, v):\n    return q\n",
            "reference.py:1:1: error[CU472]: `attention` returns no value",
        ),
        ("def attention(q, k, v):\n    return None\n", "error[CU475]: the reference returns NoneType, not a tensor"),
    ],
)
def test_the_first_line_says_where_and_what(tmp_path: Path, text: str | bytes, first_line: str) -> None:
    error = error_of(written(tmp_path, text))
    assert first_line in error.splitlines()[0], error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("builds", "where", "says"),
    [
        ("{'w': torch.eye(3).to_sparse()}", "4:1", "`extra_inputs` gives a sparse_coo tensor for `w`, not a tensor or"),
        ("{'w': torch.ones(3, device='meta')}", "4:1", "`extra_inputs` gives a meta tensor for `w`"),
        ("{'w': torch.nested.nested_tensor([torch.ones(3)])}", "4:1", "`extra_inputs` gives a nested tensor for `w`"),
        ("{'w': 10**30}", "4:1", "`extra_inputs` gives an integer of more than 64 bits for `w`"),
        ("{'w': 1, 7: 2}", "4:1", "`extra_inputs` has the key 7, which is no name"),
        ("{'w': 1, 'q': 2}", "4:1", "`extra_inputs` gives `q`, which is q, k or v"),
        ("{'w': 1} if shape.B == 2 else {}", "4:1", "`w` is not given at every shape"),
        ("{'w': 1 if shape.B == 2 else 0.5}", "4:1", "`w` changes its type with the shape"),
        ("{'w': torch.ones(3, dtype=torch.int64 if shape.B == 2 else None)}", "4:1", "`w` changes its type with"),
        ("{}", "2:24", "`extra_inputs` does not give the argument `w`"),
    ],
)
def test_extra_inputs_that_no_kernel_reads(tmp_path: Path, builds: str, where: str, says: str) -> None:
    text = GOOD.replace("v)", "v, w)", 1) + f"def extra_inputs(shape, device):\n    return {builds}\n"
    assert error_of(written(tmp_path, text)).startswith(f"reference.py:{where}: error[CU473]: {says}")


@pytest.mark.parametrize("name", ["B", "Hq", "Lk", "D", "G"])
def test_a_number_by_the_name_of_a_size(tmp_path: Path, name: str) -> None:
    text = GOOD.replace("v)", f"v, *, {name})", 1).replace("k.mT", f"k.mT * {name}")
    text += f"def extra_inputs(shape, device):\n    return {{'{name}': 3}}\n"
    says = f"reference.py:2:27: error[CU473]: the number `{name}` has the name of a size"
    assert error_of(written(tmp_path, text)).startswith(says)


def test_what_extra_inputs_print_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace(
        load_reference(written(tmp_path, GOOD + "def extra_inputs(shape, device):\n    print(shape)\n    return {}\n"))
    )
    assert capsys.readouterr().out == ""


def test_a_loop_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(load_reference(written(tmp_path, GOOD)))  # imports take their time once
    monkeypatch.setattr("cubridge.frontend.reference.watch.SECONDS", 0.5)
    text = "def attention(q, k, v):\n    n = 0\n    while True:\n        n = n + 1\n    return q\n"
    error = error_of(written(tmp_path, text))
    assert error.startswith("reference.py:"), error
    assert "error[CU489]: the reference does not come to an end" in error


def test_compiled_helpers_are_read(tmp_path: Path) -> None:
    text = "import torch\n@torch.compile\ndef scores(q, k):\n    return q @ k.mT\n"
    text += "def attention(q, k, v):\n    return scores(q, k).softmax(-1) @ v\n"
    trace(load_reference(written(tmp_path, text)))


def test_cached_helpers_are_read_and_caches_elsewhere_explained(tmp_path: Path) -> None:
    helper = "import functools, torch\n@functools.cache\ndef keep(n, m):\n    return torch.ones(n, m).tril() > 0\n"
    text = "def attention(q, k, v):\n    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))\n"
    text += "    s = q @ k.mT\n"
    text += "    return s.where(keep(q.shape[2], k.shape[2]), -torch.inf).softmax(-1) @ v\n"
    reference = load_reference(written(tmp_path, helper + text))
    before = reference.globals["keep"]
    trace(reference)
    assert reference.globals["keep"] is before
    (tmp_path / "beside.py").write_text(helper)
    assert "help: sizes are symbols while it is read" in error_of(
        written(tmp_path, "import torch, beside\n" + text.replace("keep(", "beside.keep("))
    )


def test_a_function_by_another_name(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("attention", "mine"))
    assert load_reference(path, "mine").name == "mine"
    assert load_reference(path).name == "mine", "the only candidate is taken"
    assert "the file defines `mine`" in error_of(path, "other")


def test_crlf_and_other_letters(tmp_path: Path) -> None:
    text = (
        "# Größe\r\nimport torch\r\ndef attention(q, k, v):\r\n    ä = q @ k.mT\r\n    return ä.sort(-1).values @ v\r\n"
    )
    error = error_of(written(tmp_path, text))
    assert error.startswith("reference.py:5:12: error[CU476]: `sort`"), error
    assert error.splitlines()[1] == "5 |     return ä.sort(-1).values @ v"


def test_files_beside_it_may_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def scores(q, k):\n    return q @ k.mT\n")
    text = "import torch\nfrom beside import scores\ndef attention(q, k, v):\n    return scores(q, k).softmax(-1) @ v\n"
    trace(load_reference(written(tmp_path, text)))


def test_a_file_of_the_same_name_beside_another_reference(tmp_path: Path) -> None:
    text = "from same import scale\n" + GOOD.replace("k.mT", "k.mT * scale")
    for scale in ("0.5", "0.25"):
        (tmp_path / scale).mkdir()
        (tmp_path / scale / "same.py").write_text(f"scale = {scale}\n")
        traced = trace(load_reference(written(tmp_path / scale, text)))
        assert print_expr(traced.spec.score) == f"s * {scale}"


def test_what_the_reference_prints_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace(
        load_reference(
            written(tmp_path, "print('hello')\n" + GOOD.replace("    return", "    print(q.shape)\n    return"))
        )
    )
    assert capsys.readouterr().out == ""


def test_a_class_of_modules_is_made(tmp_path: Path) -> None:
    text = (
        "import torch\nclass attention(torch.nn.Module):\n"
        "    def forward(self, q, k, v):\n        return (q @ k.mT).softmax(-1) @ v\n"
    )
    trace(load_reference(written(tmp_path, text)))
    needs = text.replace("    def forward", "    def __init__(self, heads):\n        pass\n    def forward")
    assert "`attention()` fails" in error_of(written(tmp_path, needs))


def test_a_live_callable_without_source() -> None:
    namespace: dict[str, object] = {}
    exec("def attention(q, k, v):\n    return (q @ k.mT).sort(-1).values @ v\n", namespace)
    function = namespace["attention"]
    assert callable(function)
    with pytest.raises(CuError, match="CU476"):
        trace(Reference.of(function))


def test_not_callable() -> None:
    with pytest.raises(CuError, match="CU472"):
        Reference.of(3)  # pyright: ignore[reportArgumentType]


def test_gradients_are_not_asked_for() -> None:
    weight = torch.ones(1, requires_grad=True)

    def attention(q, k, v):
        return (q @ k.mT * weight).softmax(-1) @ v

    trace(Reference.of(attention))
