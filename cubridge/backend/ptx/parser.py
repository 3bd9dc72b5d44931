"""PTX text -> a program. Every name is resolved here; a text that is not understood is refused at its place (CU838)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from cubridge.backend.ptx.functions import KNOWN, MOST_READ_AGAIN, Function, bound, called, read_call, read_head
from cubridge.backend.ptx.operands import OperandError, Scope, parse_operands
from cubridge.backend.ptx.places import Places
from cubridge.backend.ptx.program import Instruction, Operand, Program, Reg, Space, Variable
from cubridge.backend.ptx.variables import Layout, declared_registers, declared_variable, is_register, is_variable
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

MOST_BYTES: Final = 64 << 20
_COMMENT: Final = re.compile(r'"[^"\n]*+"|//[^\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL)
_STEP: Final = re.compile(
    r"""\s*(?:(?P<open>\{)|(?P<close>\})|(?P<empty>;)
    |(?P<place>\.(?:loc|file)\b[^\n]*+)
    |(?P<label>[\w$]++)\s*+:(?!:)
    |(?P<directive>\.[^;{}=]*+(?:=\s*+(?:\{[^{};]*+\}|[^;{}]*+))?+)(?P<directive_end>;|(?=\{)|(?=\})|$)
    |(?:@(?P<guard>!?[%\w$]++)\s++)?+(?P<name>[a-z][\w.:]*+)(?P<operands>[^;]*+);)""",
    re.VERBOSE,
)
_ENTRY: Final = re.compile(r"(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)\s*\(([^)]*)\)(.*)", re.DOTALL)
_RETURN: Final = ""
"""The label behind a call; no text can name it."""
_THREADS: Final = re.compile(r"\.reqntid\s+(\d{1,9})(?:\s*,\s*(\d{1,9}))?(?:\s*,\s*(\d{1,9}))?")
_MOST_THREADS: Final = re.compile(r"\.maxntid\s+(\d{1,9})(?:\s*,\s*(\d{1,9}))?(?:\s*,\s*(\d{1,9}))?")
_MOST_REGISTERS: Final = 1 << 18
_MOST_SCOPES: Final = 100
_HEADER: Final = (".version", ".target", ".address_size")
_SKIPPED: Final = (".pragma", ".alias", ".callprototype", ".branchtargets")
_SECTION: Final = re.compile(r"\s*\.section\b[^{]*\{[^}]*\}")


def parse_program(source: SourceFile, entry: str) -> Program:
    """The kernel named `entry` of a PTX text. Errors: CU838."""
    if len(source.data) > MOST_BYTES:
        _refuse(source, 0, 0, f"{len(source.data)} bytes of PTX are more than the {MOST_BYTES} that are read")
    text = source.data.decode("latin-1").rstrip("\0")
    return _Parser(source, _COMMENT.sub(_blank, text), entry).run()


def _blank(match: re.Match[str]) -> str:
    """Comments become blanks, so that offsets stay."""
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])


@dataclass(slots=True)
class _Branch:
    """A branch whose label may come later."""

    at: int
    label: str
    scopes: tuple[Scope, ...]


@dataclass(slots=True)
class _Parser:
    source: SourceFile
    text: str
    entry: str
    at: int = 0
    places: Places = field(default_factory=Places)
    layout: Layout = field(default_factory=Layout)
    scopes: list[Scope] = field(default_factory=lambda: [Scope()])
    registers: list[int] = field(default_factory=list[int])
    predicates: int = 0
    code: list[Instruction] = field(default_factory=list[Instruction])
    branches: list[_Branch] = field(default_factory=list[_Branch])
    threads: int | None = None
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    placed: dict[int, Variable] = field(default_factory=dict[int, Variable])
    calls: tuple[str, ...] = ()
    read_again: int = 0
    place: int = -1
    caller: int = -1

    def run(self) -> Program:
        found = self._module()
        if found is None:
            self._fail(0, 0, f"the PTX has no entry `{self.entry}`")
        self._entry(*found)
        self._resolve()
        return Program(
            source=self.source,
            entry=self.entry,
            registers=tuple(self.registers),
            predicates=self.predicates,
            code=tuple(self.code),
            variables=dict(self.scopes[0].variables),
            data=bytes(self.layout.data),
            param_bytes=self.layout.ends[Space.PARAM],
            shared_bytes=self.layout.shared_bytes,
            local_bytes=self.layout.ends[Space.LOCAL],
            threads=self.threads,
            places=self.places,
        )

    # ---- the module ----

    def _module(self) -> tuple[re.Match[str], re.Match[str]] | None:
        """Declares what stands outside of bodies; returns the step and the head of the entry."""
        entry = None
        while (step := self._step()) is not None:
            match step.lastgroup:
                case "place":
                    self.places.add(step["place"])
                case "directive_end":
                    entry = self._module_directive(step) or entry
                case "empty":
                    pass
                case _:
                    self._fail(step.start(), step.end(), "this stands outside every function")
        return entry

    def _module_directive(self, step: re.Match[str]) -> tuple[re.Match[str], re.Match[str]] | None:
        directive = " ".join(step["directive"].split())
        if directive.startswith(_HEADER):
            self._header_lines(step)
        elif directive.startswith(".section"):
            self._section(step)
        elif found := _ENTRY.match(directive):
            wanted = found[1] == self.entry
            self._skip_body(step, is_read_later=wanted)
            return (step, found) if wanted else None
        elif is_variable(directive):
            self._variable(step, directive)
        elif ".func" in directive:
            self._function(step, directive)
        else:
            self._fail(step.start("directive"), step.end("directive"), "an unknown directive")
        return None

    def _header_lines(self, step: re.Match[str]) -> None:
        """`.version` and its like end with their line."""
        self.at = self._line_end(step.start("directive"))

    def _section(self, step: re.Match[str]) -> None:
        whole = _SECTION.match(self.text, step.start("directive"))
        if whole is None:
            self._fail(step.start("directive"), step.end("directive"), "a section without an end")
        self.at = whole.end()

    def _function(self, step: re.Match[str], directive: str) -> None:
        found = read_head(directive, None if step["directive_end"] else step.end())
        if found is None:
            self._fail(step.start("directive"), step.end("directive"), "a function of an unknown form")
        if found.body is not None:
            self._skip_body(step)
        if found.body is not None or found.name not in self.functions:
            self.functions[found.name] = found

    def _entry(self, step: re.Match[str], head: re.Match[str]) -> None:
        _, params, tuning = head.groups()
        fixed = _THREADS.search(tuning) or _MOST_THREADS.search(tuning)
        if fixed:
            self.threads = 1
            for n in fixed.groups():
                self.threads *= int(n or 1)
        elif "ntid" in tuning:
            self._fail(step.start("directive"), step.end("directive"), "a number of threads of an unknown form")
        for number, param in enumerate(filter(None, (p.strip() for p in params.split(",")))):
            self._declare(step, param, -1 - number)
        self.at = step.end()
        self._open(step)
        self._body()

    def _skip_body(self, step: re.Match[str], is_read_later: bool = False) -> None:
        depth, at = 0, step.end()
        for brace in re.compile(r"[{}]").finditer(self.text, at):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                self.at = brace.end()
                return
        if not is_read_later:
            self._fail(step.start("directive"), step.end("directive"), "a function without an end")
        self.at = len(self.text)

    # ---- a body ----

    def _open(self, step: re.Match[str]) -> None:
        opening = self._step()
        if opening is None or opening.lastgroup != "open":
            self._fail(step.start("directive"), step.end("directive"), "a function without a body")
        self.scopes.append(Scope())

    def _body(self) -> None:
        depth = len(self.scopes)
        while len(self.scopes) >= depth:
            step = self._step()
            if step is None:
                self._fail(self.at, self.at, "the text ends inside of a function")
            match step.lastgroup:
                case "open":
                    self.scopes.append(Scope())
                    if len(self.scopes) > _MOST_SCOPES:
                        self._fail(step.start("open"), step.end("open"), f"braces are more than {_MOST_SCOPES} deep")
                case "close":
                    self.scopes.pop()
                case "place":
                    self.places.add(step["place"], self.caller)
                    self.place = self.places.last
                case "label":
                    self._label(step)
                case "directive_end":
                    self._body_directive(step)
                case "operands":
                    self._instruction(step)
                case _:
                    pass

    def _label(self, step: re.Match[str]) -> None:
        labels = self.scopes[-1].labels
        if step["label"] in labels:
            self._fail(step.start("label"), step.end("label"), f"a second label `{step['label']}`")
        labels[step["label"]] = len(self.code)

    def _body_directive(self, step: re.Match[str]) -> None:
        directive = " ".join(step["directive"].split())
        if is_register(directive):
            self._registers(step, directive)
        elif is_variable(directive):
            self._variable(step, directive)
        elif not directive.startswith(_SKIPPED):
            self._fail(step.start("directive"), step.end("directive"), "an unknown directive")

    def _registers(self, step: re.Match[str], directive: str) -> None:
        declared = declared_registers(directive)
        if declared is None:
            self._fail(step.start("directive"), step.end("directive"), "registers of an unknown type")
        width, names = declared
        for name in names:
            index = self.predicates if width == 0 else len(self.registers)
            self.scopes[-1].registers[name] = Reg(index, width)
            if width == 0:
                self.predicates += 1
            else:
                self.registers.append(width)
        if self.predicates + len(self.registers) > _MOST_REGISTERS:
            self._fail(step.start("directive"), step.end("directive"), f"more than {_MOST_REGISTERS} registers")

    def _variable(self, step: re.Match[str], directive: str) -> None:
        self._declare(step, directive, step.start())

    def _declare(self, step: re.Match[str], directive: str, key: int) -> None:
        """`key`: of the declaration. One that is read again names the same memory, unless it is each thread's own."""
        declared = declared_variable(directive)
        if declared is None:
            self._fail(step.start("directive"), step.end("directive"), "a variable of an unknown form")
        if declared.space is Space.PARAM and len(self.scopes) > 1:
            declared = replace(declared, space=Space.LOCAL)
        own = declared.space is Space.LOCAL
        if own or key not in self.placed:
            placed = self.layout.place(declared)
            if placed is None:
                self._fail(step.start("directive"), step.end("directive"), "more bytes of variables than there may be")
            self.placed[key] = placed
        self.scopes[-1 if own else 0].variables[declared.name] = self.placed[key]

    def _instruction(self, step: re.Match[str]) -> None:
        guard = self._guard(step)
        match step["name"].split(".")[0]:
            case "bra":
                self._branch(step, guard, step["operands"].strip())
            case "ret" if self.calls:
                self._branch(step, guard, _RETURN)
            case "call":
                self._call(step, guard)
            case _:
                try:
                    self._append(step, step["name"], guard, parse_operands(step["operands"], self.scopes))
                except OperandError as error:
                    self._fail(*_extent(step), str(error))

    def _append(self, step: re.Match[str], name: str, guard: Reg | None, operands: tuple[Operand, ...] = ()) -> None:
        self.code.append(Instruction(name, guard, operands, -1, *_extent(step), self.place))

    def _branch(self, step: re.Match[str], guard: Reg | None, label: str) -> None:
        self.branches.append(_Branch(len(self.code), label, tuple(self.scopes)))
        self._append(step, "bra", guard)

    # ---- calls ----

    def _call(self, step: re.Match[str], guard: Reg | None) -> None:
        try:
            call = read_call(step["operands"])
            behind = Scope()
            if guard is not None:
                self.scopes.append(behind)
                self._branch(step, replace(guard, negated=not guard.negated), _RETURN)
                self.scopes.pop()
            if call.name in KNOWN:
                for name in KNOWN[call.name]:
                    self._append(step, name, None)
            else:
                function, body = called(call, self.functions, self.calls)
                behind.variables.update(bound(call, function, self.scopes))
                self._read_again(step, function, body, behind)
        except OperandError as error:
            self._fail(*_extent(step), str(error))
        behind.labels[_RETURN] = len(self.code)

    def _read_again(self, step: re.Match[str], function: Function, body: int, parameters: Scope) -> None:
        kept = self.at, self.scopes, self.calls, self.place, self.caller
        self.scopes, self.calls = [self.scopes[0], parameters], (*self.calls, function.name)
        self.at, self.caller = body, self.place
        self._open(step)
        self._body()
        self.read_again += self.at - body + step.end() - step.start()
        self.at, self.scopes, self.calls, self.place, self.caller = kept
        if self.read_again > MOST_READ_AGAIN:
            self._fail(*_extent(step), f"calls that would repeat more than {MOST_READ_AGAIN} bytes of text")

    def _guard(self, step: re.Match[str]) -> Reg | None:
        if step["guard"] is None:
            return None
        name = step["guard"].lstrip("!")
        found = next((s.registers[name] for s in reversed(self.scopes) if name in s.registers), None)
        if found is None or found.bytes != 0:
            self._fail(step.start("guard"), step.end("guard"), f"`{name}` is no predicate")
        return Reg(found.index, 0, step["guard"].startswith("!"))

    def _resolve(self) -> None:
        for branch in self.branches:
            target = next((s.labels[branch.label] for s in reversed(branch.scopes) if branch.label in s.labels), None)
            found = self.code[branch.at]
            if target is None:
                self._fail(found.start, found.end, f"a branch to `{branch.label}`, which is no label here")
            self.code[branch.at] = replace(found, target=target)

    # ---- text ----

    def _step(self) -> re.Match[str] | None:
        step = _STEP.match(self.text, self.at)
        if step is None:
            if self.text[self.at :].strip() == "":
                return None
            start = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            self._fail(start, self._line_end(start), "this is no statement of PTX")
        self.at = step.end()
        return step

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end

    def _fail(self, start: int, end: int, message: str) -> NoReturn:
        _refuse(self.source, start, end, message)


def _extent(step: re.Match[str]) -> tuple[int, int]:
    return step.start("guard") - 1 if step["guard"] else step.start("name"), step.end()


def _refuse(source: SourceFile, start: int, end: int, message: str) -> NoReturn:
    raise CuError(Diagnostic("CU838", message, Span(source, start, end)))
