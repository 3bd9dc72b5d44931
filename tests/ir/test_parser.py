"""CuIR text to nodes: what is accepted, where nodes are, and every refusal with its place."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import (
    Argument,
    Attr,
    Binary,
    BoolLit,
    Call,
    CopyAsync,
    Expr,
    FloatLit,
    Gemm,
    If,
    Index,
    IntLit,
    Name,
    Record,
    RegionCall,
    Unary,
)
from cubridge.ir.parser import MAX_BYTES, parse, parse_expr
from cubridge.ir.printer import print_expr, print_stmts, to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.walk import walk
from tests.support.golden_texts import GOLDEN_NAMES, golden_file, golden_kernel

X, Y, Z = Name("x"), Name("y"), Name("z")


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_text_round_trips(name: str) -> None:
    kernel = golden_kernel(name)
    text = to_text(kernel)
    assert text == golden_file(name).text
    assert parse(SourceFile.from_text("again.cuir", text)) == kernel
    ast.parse(text)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_node_has_its_place(name: str) -> None:
    for node in walk(golden_kernel(name)):
        assert node.span.file == golden_file(name)
        assert node.span.text.strip()
        if isinstance(node, Name | Attr | Index | IntLit | Call | Binary):
            assert parse_expr(node.span.text) == node
        if isinstance(node, CopyAsync | Gemm | RegionCall):
            assert node.span.text == print_stmts((node,))


def test_work_on_texts_does_not_load_torch() -> None:
    code = "from cubridge.cli import main; main(['diff', 'sm80', 'sm80']); import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EXPRESSIONS: dict[str, Expr] = {
    "x + y * z": Binary("+", X, Binary("*", Y, Z)),
    "(x + y) * z": Binary("*", Binary("+", X, Y), Z),
    "x - y - z": Binary("-", Binary("-", X, Y), Z),
    "x - (y - z)": Binary("-", X, Binary("-", Y, Z)),
    "x ** y ** z": Binary("**", X, Binary("**", Y, Z)),
    "(x ** y) ** z": Binary("**", Binary("**", X, Y), Z),
    "x ** -y": Binary("**", X, Unary("-", Y)),
    "-x ** y": Unary("-", Binary("**", X, Y)),
    "(-x) ** y": Binary("**", Unary("-", X), Y),
    "-3 ** x": Unary("-", Binary("**", IntLit(3), X)),
    "(-3) ** x": Binary("**", IntLit(-3), X),
    "-3": IntLit(-3),
    "-(3)": Unary("-", IntLit(3)),
    "--3": Unary("-", IntLit(-3)),
    "x - -3": Binary("-", X, IntLit(-3)),
    "x * -y": Binary("*", X, Unary("-", Y)),
    "~(x < y)": Unary("~", Binary("<", X, Y)),
    "~x & y": Binary("&", Unary("~", X), Y),
    "(x < y) | (y < z)": Binary("|", Binary("<", X, Y), Binary("<", Y, Z)),
    "x | y ^ z & x": Binary("|", X, Binary("^", Y, Binary("&", Z, X))),
    "x | y < z": Binary("<", Binary("|", X, Y), Z),
    "x == (y == z)": Binary("==", X, Binary("==", Y, Z)),
    "(x == y) == z": Binary("==", Binary("==", X, Y), Z),
    "x // y % z": Binary("%", Binary("//", X, Y), Z),
    "1.0": FloatLit(1.0),
    "1e-05": FloatLit(1e-05),
    "True": BoolLit(True),
    "p.k[tile.b, tile.h]": Index(Attr(Name("p"), "k"), (Attr(Name("tile"), "b"), Attr(Name("tile"), "h"))),
    "(x + y).slot": Attr(Binary("+", X, Y), "slot"),
    "(3)[x]": Index(IntLit(3), (X,)),
    "where(x < y, -inf, x)": Call("where", (Binary("<", X, Y), Unary("-", Name("inf")), X)),
    "KeySequence(lo=x, hi=3)": Record("KeySequence", (Argument("lo", X), Argument("hi", IntLit(3)))),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expression_and_its_text(text: str) -> None:
    assert parse_expr(text) == EXPRESSIONS[text]
    assert print_expr(EXPRESSIONS[text]) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.", FloatLit(1.0)), ("1e3", FloatLit(1000.0)), ("00", IntLit(0)), ("((x))", X), ("x[y,]", Index(X, (Y,)))],
)
def test_other_spellings(text: str, value: Expr) -> None:
    assert parse_expr(text) == value


def test_spans_hold_bytes_of_the_text() -> None:
    expr = parse_expr(SourceFile.from_text("s", "# ü\n(x + y) * z"))
    assert isinstance(expr, Binary)
    assert (expr.span.text, expr.left.span.text, expr.right.span.text) == ("(x + y) * z", "(x + y)", "z")
    assert expr.span.location == (2, 1)


WRONG_EXPRESSIONS = {
    "x <": "the text ends in the middle of something",
    "": "the text ends in the middle of something",
    "x y": "token `y` has no place here",
    "x and y": "word `and` has no place here",
    "x if y else z": "word `if` has no place here",
    "not x": "token `x` has no place here",
    "lambda": "`lambda` is no name",
    "None": "`None` is no name",
    "x.class": "`class` is no name",
    "x < y < z": "comparisons do not chain",
    "x < y | y < z": "comparisons do not chain",
    "x << 3": "token `<` has no place here",
    "x @ y": "token `@` has no place here",
    "'x'": "character `'` has no place here",
    '"x"': "a string has no place here",
    "f(x)": "CuIR has no function `f`",
    "__import__(x)": "CuIR has no function `__import__`",
    "wher(x, y, z)": "CuIR has no function `wher`",
    "where(x, b=y)": "`where` takes no keywords",
    "F(a=x, a=y)": "`a` is given twice",
    "F(a=x, y)": "a positional argument follows a keyword",
    "012": "an integer does not start with 0",
    "9" * 30: "an integer must fit into 64 bits",
    "1e999": "this number is too large",
    "x\ty": "control character '\\t'",
    "x # \x00": "control character '\\x00'",
    "x + é": "character `é` has no place here",
    "(x": "the text ends in the middle of something",
    "x)": "token `)` has no place here",
    "(" * 5000 + "x" + ")" * 5000: "nested deeper than 100 levels",
    "-" * 5000 + "x": "nested deeper than 100 levels",
    "x" + "**x" * 5000: "nested deeper than 100 levels",
    "x" + ".x" * 5000: "nested deeper than 100 levels",
    "+".join("x" * 5000): "nested deeper than 100 levels",
    "abs(" * 5000 + "x" + ")" * 5000: "nested deeper than 100 levels",
}


@pytest.mark.parametrize("text", WRONG_EXPRESSIONS, ids=lambda t: t[:20])
def test_wrong_expression(text: str) -> None:
    with pytest.raises(CuError) as caught:
        parse_expr(text)
    assert caught.value.diagnostics[0].message == WRONG_EXPRESSIONS[text]
    assert "<expression>:1:" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "message"),
    [
        ("cuir(version=1)\n", "", "CU102", "2:1", "the text must begin with `cuir(version=1)`"),
        ("version=1", "version=2", "CU102", "1:1", "the text has another CuIR version"),
        ("version=1", "", "CU102", "1:1", "the text has another CuIR version"),
        ("STAGES=2", "STAGES=D", "CU101", "3:54", "constant `STAGES` needs a number"),
        ("tile_state()\n", "", "CU101", "20:1", "section `row_state` is out of place"),
        ("tile_state()", "tile_stat()", "CU103", "20:1", "CuIR has no section `tile_stat`"),
        ("m=Row(f32)", "m=Rows(f32)", "CU103", "22:7", "CuIR has no type `Rows`"),
        ("m=Row(f32)", "m=Row(f33)", "CU103", "22:11", "CuIR has no element type `f33`"),
        ("m=Row(f32)", "m=Row()", "CU101", "22:7", "`Row` needs `dtype`"),
        ("m=Row(f32)", "m=Row(f32, f32)", "CU101", "22:7", "`Row` takes at most 1 arguments"),
        ("optional=True", "optional=1", "CU101", "10:41", "this must be True or False"),
        ("swizzle=128", "swizle=128", "CU103", "16:37", "CuIR has no argument of `Tile` named `swizle`"),
        ("@region\ndef tile_setup", "@regio\ndef tile_setup", "CU103", "28:2", "CuIR has no decorator `regio`"),
        ("def tile_setup", "def setup", "CU103", "29:5", "CuIR has no region `setup`"),
        ("    tile_setup(tile)", "    setup(tile)", "CU103", "97:5", "CuIR has no operation `setup`"),
        ("    zero(o)", "    zero()", "CU101", "107:5", "`zero` needs `dst`"),
        ("    zero(o)", "    zero", "CU101", "107:5", "an expression alone does nothing"),
        ("    zero(o)", "    exec(o)", "CU103", "107:5", "CuIR has no operation `exec`"),
        ("    zero(o)", "   zero(o)", "CU101", "107:4", "this line is indented as no block around it is"),
        ("    zero(o)", "      zero(o)", "CU101", "107:7", "this line is indented, but nothing above it opens a block"),
        ("    zero(o)", "    zero(o", "CU101", "108:5", "token `row_init` has no place here"),
        ("    zero(o)", "    zero(o) =", "CU101", "107:14", "the line ends in the middle of something"),
        ("    zero(o)", "    1 = o", "CU101", "107:5", "this cannot be assigned to"),
        ("    zero(o)", "    o += o", "CU101", "107:5", "`+=` accumulates a gemm alone"),
        ("    zero(o)", "    return o", "CU101", "107:5", "`return` has no place here"),
        (
            "    zero(o)",
            "    while o:\n        break",
            "CU101",
            "107:11",
            "a loop without a range is `while True:`, left by `break`",
        ),
        ("range(0, ROWS)", "range(ROWS)", "CU101", "131:9", "a loop runs over `range(start, stop)`"),
        (', team="block"', "", "CU101", "100:2", "`@kernel(..)` needs `team=..`"),
        ("def attention_forward()", "def attention_forward(x)", "CU101", "101:5", "a kernel takes and returns nothing"),
    ],
)
def test_wrong_kernel(old: str, new: str, code: str, place: str, message: str) -> None:
    text = golden_file("sm80").text
    assert old in text
    with pytest.raises(CuError) as caught:
        parse(SourceFile.from_text("bad.cuir", text.replace(old, new, 1)))
    diagnostic = caught.value.diagnostics[0]
    assert str(caught.value).startswith(f"bad.cuir:{place}: error[{code}]: {message}")
    assert diagnostic.message == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the text must begin with `cuir(version=1)`"),
        (b"# nothing", "the text must begin with `cuir(version=1)`"),
        (b"  cuir(version=1)", "the first line is indented"),
        (b"cuir(version=1)\xff", "the text is not UTF-8"),
        (b"#" * (MAX_BYTES + 1), f"the text is longer than {MAX_BYTES} bytes"),
        (b"cuir(version=1)\r# old Mac", "control character '\\r'"),
    ],
)
def test_wrong_text(data: bytes, message: str) -> None:
    with pytest.raises(CuError) as caught:
        parse(SourceFile("bad.cuir", data))
    assert caught.value.diagnostics[0].message == message


def test_deep_blocks_are_refused() -> None:
    head, tail = golden_file("sm80").text.split("    tile = work_tile()\n", 1)
    nest = "".join("    " * (n + 1) + "if True:\n" for n in range(300)) + "    " * 301 + "commit()\n"
    with pytest.raises(CuError, match="nested deeper"):
        parse(SourceFile.from_text("deep.cuir", head + nest + "    tile = work_tile()\n" + tail))


def test_comments_blank_lines_and_line_ends_mean_nothing() -> None:
    text = golden_file("sm80").text
    noisy = text.replace("    zero(o)\n", "\n    zero(o)  # é\n        # deep\n  \n# flat\n").replace(
        "o=Global", "# c\n o=Global"
    )
    assert parse(SourceFile.from_text("noisy", noisy)) == golden_kernel("sm80")
    assert parse(SourceFile("crlf", text.replace("\n", "\r\n").encode())) == golden_kernel("sm80")
    assert parse(SourceFile.from_text("no end", text.rstrip())) == golden_kernel("sm80")


def test_statements() -> None:
    kernel = golden_kernel("sm80")
    copy = next(s for s in walk(kernel) if isinstance(s, CopyAsync))
    assert copy.signal is None
    assert copy.span.text == "copy_async(smem.q, p.q[tile.b, tile.h], row=tile.q_start)"
    gemms = [s for s in walk(kernel) if isinstance(s, Gemm)]
    assert [(g.transposed, g.accumulate, g.asynchronous) for g in gemms] == [(True, False, False), (False, True, False)]
    branch = next(s for s in kernel.body if isinstance(s, If))
    assert branch.span.text == "if count > 0:"
