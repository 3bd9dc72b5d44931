"""Syntax trees of CuIR text to kernels, functions and statements. Expressions are `build_expr.py`'s."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import zip_longest
from typing import Final

from lark import Token, Tree

from cubridge.ir.build_expr import Arguments, ExprBuilder, fail, unknown
from cubridge.ir.families import ALL_REGIONS, FAMILIES, FORWARD
from cubridge.ir.nodes import (
    CUIR_VERSION,
    Assign,
    Attr,
    BoolLit,
    Break,
    Constant,
    Expr,
    Field,
    FieldType,
    FloatLit,
    For,
    Function,
    Gemm,
    If,
    IntLit,
    Kernel,
    Loop,
    Name,
    Op,
    RegionCall,
    RegisterTile,
    Stmt,
)
from cubridge.ir.source import Span
from cubridge.ir.vocabulary import (
    FIELD_FORMS,
    GEMMS,
    OP_FORMS,
    QUERY_REGIONS,
    SCHEDULE,
    SCORE_STATE,
    SECTIONS,
    VALUE_REGIONS,
)

_VOID_REGIONS: Final = frozenset(ALL_REGIONS) - {*VALUE_REGIONS, *QUERY_REGIONS}
_STATEMENTS: Final = frozenset({*OP_FORMS, *_VOID_REGIONS})
_TRAITS: Final = ("arch", "threads", "team", "row_origin")
_FAMILY: Final = "family"
_ALL_SECTIONS: Final = ("cuir", "const", *SECTIONS)


class Builder(ExprBuilder):
    """Builds the nodes of one text."""

    def kernel(self, tree: Tree[Token]) -> Kernel:
        """Errors: CU101, CU102, CU103."""
        items = [item for item in tree.children if isinstance(item, Tree)]
        sections = [self._section(item) for item in items if item.data == "section"]
        self._check_version(items, sections)
        self._check_sections(items, sections)
        fields = {s.callee: tuple(self._fields(s)) for s in sections[2:]}
        traits = self._traits(items[-1])
        family = self._family(traits)
        *regions, schedule, kernel = self._functions(items[len(sections) :], FAMILIES[family].regions)
        return Kernel(
            name=kernel.name,
            arch=self._text(traits["arch"]),
            threads=self.expr(traits["threads"], 0),
            team=self._text(traits["team"]),
            row_origin=self.expr(traits["row_origin"], 0),
            constants=tuple(self._constants(sections[1])),
            params=fields["params"] + fields["variant_params"],
            shared=fields["shared"],
            tile_state=fields["tile_state"],
            row_state=fields["row_state"],
            regions=tuple(regions),
            schedule=schedule,
            body=kernel.body,
            family=family,
            score_state=fields.get(SCORE_STATE, ()),
            span=kernel.span,
        )

    # ---- sections ----------------------------------------------------------------------------------------------------

    def _section(self, tree: Tree[Token]) -> Arguments:
        name, arguments = tree.children
        assert isinstance(arguments, Tree)
        return self.arguments(arguments, str(name), tree)

    def _check_version(self, items: list[Tree[Token]], sections: list[Arguments]) -> None:
        if not items or items[0].data != "section" or sections[0].callee != "cuir":
            span = self.span(items[0]) if items else Span(self.file, 0, 0)
            fail(f"the text must begin with `cuir(version={CUIR_VERSION})`", span, "CU102")
        version = self.bind(sections[0], ("version",)).get("version")
        if version is None or self.expr(version, 0) != IntLit(CUIR_VERSION):
            help = f"this cubridge reads version {CUIR_VERSION}"
            fail("the text has another CuIR version", sections[0].span, "CU102", help)

    def _check_sections(self, items: list[Tree[Token]], sections: list[Arguments]) -> None:
        help = f"the sections are {', '.join(_ALL_SECTIONS)}, each once, in this order and before the functions"
        keeps = len(sections) > len(_ALL_SECTIONS) and sections[-1].callee == SCORE_STATE
        known = (*_ALL_SECTIONS, SCORE_STATE) if keeps else _ALL_SECTIONS
        for section, expected in zip_longest(sections, known):
            if section is None:
                fail(f"section `{expected}(..)` is missing", sections[-1].span, help=help)
            if section.callee not in known:
                unknown("section", section.callee, known, section.span)
            if section.callee != expected:
                fail(f"section `{section.callee}` is out of place", section.span, help=help)
            if section.positional:
                fail(f"`{section.callee}` takes `name=..` alone", section.span)
        for item in items[: len(sections)]:
            if item.data != "section":
                fail("a function stands before a section", self.span(item), help=help)

    def _constants(self, section: Arguments) -> Iterator[Constant]:
        for name, tree in section.keywords.items():
            match self.expr(tree, 0):
                case IntLit(value) | FloatLit(value):
                    yield Constant(name, value, span=section.places[name])
                case other:
                    fail(f"constant `{name}` needs a number", other.span)

    def _fields(self, section: Arguments) -> Iterator[Field]:
        for name, tree in section.keywords.items():
            call = self._call_of(tree)
            if call is None or call.callee not in FIELD_FORMS:
                unknown("type", call.callee if call else self.span(tree).text, FIELD_FORMS, self.span(tree))
            kind = self.form(FIELD_FORMS[call.callee], call, 0)
            assert isinstance(kind, FieldType)
            yield Field(name, kind, section.callee != "variant_params", span=section.places[name])

    # ---- functions ---------------------------------------------------------------------------------------------------

    def _functions(self, trees: list[Tree[Token]], known: Collection[str]) -> list[Function]:
        kinds = [str(tree.children[0]) for tree in trees]
        for kind, tree in zip(kinds, trees, strict=True):
            if kind not in ("region", "schedule", "kernel"):
                unknown("decorator", kind, ("region", "schedule", "kernel"), self.span(tree.children[0] or tree))
        if kinds[-2:] != ["schedule", "kernel"] or set(kinds[:-2]) - {"region"}:
            end = Span(self.file, len(self.file.data), len(self.file.data))
            place = self.span(trees[-1].children[0] or trees[-1]) if trees else end
            fail("a kernel has its regions, then one @schedule, then one @kernel", place)
        functions = [self._function(tree) for tree in trees]
        for region in functions[:-2]:
            if region.name not in known:
                unknown("region", region.name, known, region.span)
        if functions[-2].name != SCHEDULE:
            fail(f"the schedule is called `{SCHEDULE}`", functions[-2].span)
        if functions[-1].params or functions[-1].result is not None:
            fail("a kernel takes and returns nothing", functions[-1].span)
        return functions

    def _function(self, tree: Tree[Token]) -> Function:
        kind, arguments, name, params, suite = tree.children
        assert isinstance(params, Tree) and isinstance(suite, Tree)
        if kind != "kernel" and isinstance(arguments, Tree):
            fail(f"`@{kind}` takes no arguments", self.span(arguments))
        statements = [s for s in suite.children if isinstance(s, Tree)]
        result = None
        if statements[-1].data == "return_statement":
            result = self.expr(_child(statements.pop(), 0), 1)
        names = tuple(self.word(p) for p in params.children if isinstance(p, Token))
        span = self.span(name or tree).to(self.span(params))
        return Function(self.word(name), names, self._body(statements, 1), result, span=span)

    def _traits(self, tree: Tree[Token]) -> dict[str, Tree[Token]]:
        arguments = tree.children[1]
        given = {}
        if isinstance(arguments, Tree):
            given = self.bind(self.arguments(arguments, "kernel", arguments), (), (*_TRAITS, _FAMILY))
        missing = [t for t in _TRAITS if t not in given]
        if missing:
            fail(f"`@kernel(..)` needs `{missing[0]}=..`", self.span(tree.children[0] or tree))
        return given

    def _family(self, traits: dict[str, Tree[Token]]) -> str:
        if _FAMILY not in traits:
            return FORWARD
        name = self._text(traits[_FAMILY])
        return name if name in FAMILIES else unknown("family", name, FAMILIES, self.span(traits[_FAMILY]))

    def _text(self, flat: Tree[Token]) -> str:
        item = _child(flat, 0)
        if len(flat.children) != 1 or item.data != "string":
            fail("this must be a string", self.span(flat))
        return str(item.children[0])[1:-1]

    # ---- statements --------------------------------------------------------------------------------------------------

    def _body(self, statements: list[Tree[Token]], depth: int) -> tuple[Stmt, ...]:
        built = (self._statement(tree, depth) for tree in statements)
        return tuple(statement for statement in built if statement is not None)

    def _suite(self, tree: Tree[Token], at: int, depth: int) -> tuple[Stmt, ...]:
        suite = tree.children[at]
        if not isinstance(suite, Tree):
            return ()  # no else
        return self._body([s for s in suite.children if isinstance(s, Tree)], depth + 1)

    def _statement(self, tree: Tree[Token], depth: int) -> Stmt | None:
        """One statement; None for `pass`."""
        self.check_depth(depth, tree)
        match str(tree.data):
            case "pass_statement":
                return None
            case "break_statement":
                return Break(span=self._line(tree))
            case "assign":
                return self._assign(tree, depth)
            case "accumulate":
                return self._accumulate(tree, depth)
            case "call_statement":
                return self._call_statement(tree, depth)
            case "if_statement":
                condition = self.expr(_child(tree, 0), depth)
                return If(condition, self._suite(tree, 1, depth), self._suite(tree, 2, depth), span=self._line(tree))
            case "for_statement":
                return self._for(tree, depth)
            case "while_statement":
                if not isinstance(condition := self.expr(_child(tree, 0), depth), BoolLit) or not condition.value:
                    fail("a loop without a range is `while True:`, left by `break`", condition.span)
                return Loop(self._suite(tree, 1, depth), span=self._line(tree))
            case _:
                return fail("`return` has no place here", self._line(tree), help="it is the last line of a function")

    def _line(self, tree: Tree[Token]) -> Span:
        """The statement without its line end; of a block, the first line."""
        span = self.span(tree)
        text = span.text.split("\n", 1)[0].rstrip("\r ") if tree.data in _BLOCKS else span.text.rstrip()
        return Span(self.file, span.start, span.start + len(text.encode("utf-8")))

    def _assign(self, tree: Tree[Token], depth: int) -> Stmt:
        target = self.expr(_child(tree, 0), depth)
        if not isinstance(target, Name | Attr):
            fail("this cannot be assigned to", target.span)
        call = self._call_of(_child(tree, 1))
        if call is not None and call.callee in GEMMS:
            return self._gemm(target, call, False, self._line(tree), depth)
        if call is not None and call.callee == "register":
            return self._register(target, call, self._line(tree), depth)
        return Assign(target, self.expr(_child(tree, 1), depth), span=self._line(tree))

    def _accumulate(self, tree: Tree[Token], depth: int) -> Stmt:
        call = self._call_of(_child(tree, 1))
        if call is None or call.callee not in GEMMS:
            fail("`+=` accumulates a gemm alone", self._line(tree), help="write `x = x + ..`")
        return self._gemm(self.expr(_child(tree, 0), depth), call, True, self._line(tree), depth)

    def _gemm(self, target: Expr, call: Arguments, accumulate: bool, span: Span, depth: int) -> Gemm:
        given = self.bind(call, ("a", "b"))
        if len(given) != 2:
            fail(f"`{call.callee}` takes two tiles", call.span)
        a, b = self.expr(given["a"], depth), self.expr(given["b"], depth)
        (a, a_transposed), (b, transposed) = _factor(a), _factor(b)
        return Gemm(target, a, b, transposed, accumulate, GEMMS[call.callee], a_transposed, span=span)

    def _register(self, target: Expr, call: Arguments, span: Span, depth: int) -> RegisterTile:
        given = self.bind(call, ("dtype", "rows", "cols"))
        if not isinstance(target, Name) or "dtype" not in given or "rows" not in given:
            fail("write `name = register(dtype, rows, cols)`, or without cols for a row vector", span)
        cols = self.expr(given["cols"], depth) if "cols" in given else None
        return RegisterTile(target.id, self.dtype(given["dtype"]), self.expr(given["rows"], depth), cols, span=span)

    def _call_statement(self, tree: Tree[Token], depth: int) -> Stmt:
        call = self._call_of(_child(tree, 0))
        if call is None:
            fail("an expression alone does nothing", self._line(tree))
        if call.callee in OP_FORMS:
            op = self.form(OP_FORMS[call.callee], call, depth)
            assert isinstance(op, Op)
            return op
        if call.callee not in _VOID_REGIONS:
            unknown("operation", call.callee, _STATEMENTS, call.span)
        if call.keywords:
            fail("a region call takes no keywords", call.span)
        return RegionCall(call.callee, tuple(self.expr(a, depth) for a in call.positional), span=call.span)

    def _for(self, tree: Tree[Token], depth: int) -> Stmt:
        call = self._call_of(_child(tree, 1))
        if call is None or call.callee != "range" or len(call.positional) != 2 or call.keywords:
            fail("a loop runs over `range(start, stop)`", self._line(tree))
        start, stop = (self.expr(a, depth) for a in call.positional)
        return For(self.word(tree.children[0]), start, stop, self._suite(tree, 2, depth), span=self._line(tree))

    def _call_of(self, flat: Tree[Token]) -> Arguments | None:
        """The call that a flat list consists of."""
        item = flat.children[0]
        if len(flat.children) != 1 or not isinstance(item, Tree) or item.data != "call":
            return None
        return self.arguments(_child(item, 1), self.word(item.children[0]), item)


def _factor(tile: Expr) -> tuple[Expr, bool]:
    """A factor of a gemm, and whether it is transposed."""
    return (tile.base, True) if isinstance(tile, Attr) and tile.name == "T" else (tile, False)


_BLOCKS: Final = ("if_statement", "for_statement", "while_statement")


def _child(tree: Tree[Token], at: int) -> Tree[Token]:
    child = tree.children[at]
    assert isinstance(child, Tree)
    return child
