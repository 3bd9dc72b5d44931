"""Pipelines as text, `rewrite-mask{keep="j <= i"},infer-kv-range`, and as TOML. Both print back and reparse to the same."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.source import SourceFile, Span
from cubridge.passes.base import Pass, fault
from cubridge.passes.options import Text, build, printed
from cubridge.passes.registry import PASSES


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in the order in which they run."""

    passes: tuple[Pass, ...]

    def to_text(self) -> str:
        return ",".join(_pass_text(p) for p in self.passes)

    def to_toml(self) -> str:
        return "\n".join(_pass_toml(p) for p in self.passes)

    def __str__(self) -> str:
        return self.to_text()


def _pass_text(step: Pass) -> str:
    options = ",".join(f'{name}="{value}"' for name, value in printed(step))
    return f"{step.name}{{{options}}}" if options else step.name


def _pass_toml(step: Pass) -> str:
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in printed(step))
    return f'[[pass]]\nname = "{step.name}"\n{"".join(lines)}'


# ---- text ------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r'\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_-]*)|"(?P<string>[^"\n]*)"|(?P<sign>[{},=]))')


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: Text


Passes = Mapping[str, type[Pass]]
"""What names of a pipeline mean."""


def parse_text(source: str | SourceFile, passes: Passes = PASSES) -> Pipeline:
    """The pipeline of a text. Errors: CU501 to CU504, CU1xx in an expression; each at its place."""
    file = source if isinstance(source, SourceFile) else SourceFile.from_text("<pipeline>", source)
    return Pipeline(tuple(_TextParser(file, passes).passes()))


class _TextParser:
    """Recursive descent over tokens: passes, their options, strings."""

    def __init__(self, file: SourceFile, known: Passes) -> None:
        self.known = known
        self.tokens = [*_tokens(file)]
        self.at = 0

    def passes(self) -> Iterator[Pass]:
        if self._peek("end"):
            return
        while True:
            yield self._pass()
            if self._peek("end"):
                return
            self._take(",")

    def _pass(self) -> Pass:
        name = self._take("word")
        cls = pass_class(name, self.known)
        options: dict[str, Text] = {}
        if self._peek("{"):
            self._take("{")
            while not self._peek("}"):
                self._option(options)
                if not self._peek("}"):
                    self._take(",")
            self._take("}")
        return build(cls, options, name.span)

    def _option(self, options: dict[str, Text]) -> None:
        name = self._take("word")
        if name.value in options:
            raise fault("CU503", f"option `{name.value}` is given twice", name.span)
        self._take("=")
        options[name.value] = self._take("string")

    def _peek(self, kind: str) -> bool:
        return self.tokens[self.at].kind == kind

    def _take(self, kind: str) -> Text:
        token = self.tokens[self.at]
        if token.kind != kind:
            wanted = {"word": "a name", "string": "a value in double quotes"}.get(kind, f"`{kind}`")
            found = f"`{token.text.value}`" if token.text.value else "the end"
            raise fault("CU503", f"{wanted} belongs here, not {found}", token.text.span, help=_HELP)
        self.at += 1
        return token.text


_HELP: Final = 'a pipeline reads `pass{option="value"},other-pass`'


def _tokens(file: SourceFile) -> Iterator[_Token]:
    text = file.text
    whole = Text(text, file, 0)
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise fault("CU503", "a pipeline has no such character", whole.part(start, start + 1).span, help=_HELP)
        kind = match.lastgroup or ""
        part = whole.part(*match.span(kind))
        yield _Token(part.value if kind == "sign" else kind, part)
        at = match.end()
    yield _Token("end", whole.part(len(text), len(text)))


def pass_class(name: Text, passes: Passes) -> type[Pass]:
    """`passes`: PASSES where a pipeline may name no others. Errors: CU501."""
    cls = passes.get(name.value)
    if cls is None:
        near = difflib.get_close_matches(name.value, passes, n=1)
        own = "" if passes is PASSES else "; --load FILE.py, or an import, for one of your own"
        help = f"did you mean `{near[0]}`?" if near else f"passes: {', '.join(passes)}{own}"
        raise fault("CU501", f"no pass is called `{name.value}`", name.span, help=help)
    return cls


# ---- TOML ------------------------------------------------------------------------------------------------------------


def parse_toml(source: str | SourceFile, passes: Passes = PASSES) -> Pipeline:
    """The pipeline of a TOML text: one table `[[pass]]` each. Errors: as `parse_text`."""
    file = source if isinstance(source, SourceFile) else SourceFile.from_text("<pipeline>", source)
    try:
        data = tomllib.loads(file.data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise fault("CU503", f"not TOML: {error}", _error_place(file, str(error))) from error
    except RecursionError as error:
        raise fault("CU503", "brackets are nested too deep", Span(file, 0, 0)) from error
    tables = data.pop("pass", [])
    if data or not isinstance(tables, list):
        raise fault("CU503", "a pipeline in TOML has tables `[[pass]]` and nothing else", Span(file, 0, 0))
    return Pipeline(tuple(_toml_pass(file, n, table, passes) for n, table in enumerate(tables)))


def _error_place(file: SourceFile, message: str) -> Span:
    match = re.search(r"line (\d+), column (\d+)", message)
    if match is None or int(match[1]) > len(file.line_starts):
        return Span(file, len(file.data), len(file.data))
    at = file.offset(int(match[1]), int(match[2]))
    return Span(file, at, at)


def _toml_pass(file: SourceFile, n: int, table: object, passes: Passes) -> Pass:
    place = _table_start(file, n)
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise fault("CU503", "a pass in TOML needs a `name`", place)
    options: dict[str, Text] = {}
    for key, value in table.items():
        if not isinstance(value, str):
            raise fault("CU503", f"the value of `{key}` is no string", place, help="write every value as a string")
        options[key] = _toml_text(file, place.start, key, value)
    return build(pass_class(options.pop("name"), passes), options, place)


_TABLE: Final = re.compile(rb"^\s*(\[\[\s*pass\s*\]\])", re.MULTILINE)


def _table_start(file: SourceFile, n: int) -> Span:
    starts = [m.span(1) for m in _TABLE.finditer(file.data)]
    return Span(file, *starts[n]) if n < len(starts) else Span(file, 0, 0)


def _toml_text(file: SourceFile, start: int, key: str, value: str) -> Text:
    """The text of a value with its place in the file; a text of its own where the file spells it with escapes."""
    match = re.compile(rb"^\s*" + re.escape(key.encode()) + rb"\s*=\s*[\"']", re.MULTILINE).search(file.data, start)
    raw = value.encode()
    if match is not None and file.data.startswith(raw, match.end()):
        return Text(value, file, match.end())
    return Text(value, SourceFile.from_text(f"{file.name}:{key}", value), 0)
