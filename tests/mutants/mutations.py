"""Makes all mutants of a module: its syntax tree, changed at one place each."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# Their mutants by comparison are the negations already.
_NEGATED: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
}
_LOG_METHODS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# With swapped arguments, these functions fail at once, which shows nothing about the tests. For min
# and max the order has no meaning.
_NOT_SWAPPED: Final = {"isinstance", "issubclass", "hasattr", "getattr", "setattr", "cast"}
_OTHER_FUNCTION: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
# For the type checker alone.
_TYPING: Final = {"cast", "TypeVar", "ParamSpec", "NewType", "assert_never"}


class Change(NamedTuple):
    """One place of a tree, and the mutant's node for that place."""

    operator: str
    parent: ast.AST
    field: str
    position: int | None
    old: ast.AST
    new: ast.AST


@dataclass(frozen=True)
class Scope:
    """The place of a node in the module."""

    function: str = ""
    in_function: bool = False
    # The lines of its statement, or of the statement's head if it has a body.
    lines: range = range(0)
    # The constant or field that the node defines, if it is outside of functions.
    defines: str = ""
    # The body of the function whose parameter has the node as its default.
    default_of: range = range(0)
    # The text is for people alone: a log line, the message of an error.
    prose: bool = False


@dataclass(frozen=True)
class Mutant:
    """One mutant; *identity* stays the same when lines are added elsewhere."""

    file: str
    function: str
    operator: str
    text: str
    # A test that executes one of these lines may notice the mutant; empty: any line of the module.
    lines: frozenset[int]
    in_function: bool
    change: Change = field(compare=False, repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        """The mutant's key in the results and the reasons."""
        return self.file, self.function, self.operator, self.text

    @property
    def identity(self) -> str:
        """The key in one line."""
        return " ".join(self.key)

    @property
    def rank(self) -> str:
        """The mutant's place in a sample: pseudo-random, and the same each time."""
        return hashlib.sha256(self.identity.encode()).hexdigest()


class Module:
    """A module's source and tree; compiles its mutants one at a time."""

    def __init__(self, file: str, path: str, source: str) -> None:
        self.file, self.path = file, path
        self._tree = ast.parse(source)
        self.code = self._compile()
        self._uses = _uses(self._tree)

    def mutants(self) -> list[Mutant]:
        """Return all mutants, in the order of the source."""
        seen = Counter[tuple[str, str, str]]()
        found: list[Mutant] = []
        for change, scope in _changes(self._tree, Scope()):
            text = f"{_text(change.old)} -> {_text(change.new)}"
            key = (scope.function, change.operator, text)
            seen[key] += 1
            nth = f" (#{seen[key]})" if seen[key] > 1 else ""
            lines = frozenset(scope.lines)
            if not scope.in_function:
                used = self._uses.get(scope.defines, set[int]())
                lines = frozenset(scope.default_of or used)
            found.append(Mutant(self.file, *key[:2], text + nth, lines, scope.in_function, change))
        return found

    def compile(self, mutant: Mutant) -> CodeType:
        """Return the module's code with the mutation."""
        change = mutant.change
        _put(change, change.new)
        try:
            return self._compile()
        finally:
            _put(change, change.old)

    def _compile(self) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


def _put(change: Change, node: ast.AST) -> None:
    if change.position is None:
        setattr(change.parent, change.field, node)
    else:
        getattr(change.parent, change.field)[change.position] = node


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())


def _uses(tree: ast.Module) -> dict[str, set[int]]:
    """Return the lines, within functions, that name a constant, a field or a keyword."""
    uses: dict[str, set[int]] = {}
    functions = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
    for node in (inner for function in functions for inner in ast.walk(function)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                uses.setdefault(name, set()).add(node.lineno)
            case ast.keyword(arg=str(name)):
                uses.setdefault(name, set()).add(node.value.lineno)
            case _:
                pass
    return uses


_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def _changes(node: ast.AST, scope: Scope) -> Iterator[tuple[Change, Scope]]:
    """Yield every change below *node*."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "format_spec", "ctx", "bases"}:
            continue
        children = value if isinstance(value, list) else [value]
        for position, child in enumerate(children):
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            inner = _scope_of(child, node, name, scope)
            for operator, new in _replacements(child, node, name, inner):
                place = position if isinstance(value, list) else None
                ast.copy_location(new, child)
                ast.fix_missing_locations(new)
                yield Change(operator, node, name, place, child, new), inner
            yield from _changes(child, inner)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case (ast.Call() as call) | ast.Expr(value=ast.Call() as call):
            return _is_log(call) or _called(call) in _TYPING
        case _:
            return False


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_log(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="log" | "_log"), attr=name):
            return name in _LOG_METHODS
        case ast.Attribute(value=ast.Attribute(attr="log" | "_log"), attr=name):
            return name in _LOG_METHODS
        case _:
            return False


def _scope_of(child: ast.AST, parent: ast.AST, name: str, scope: Scope) -> Scope:
    """Return the scope of *child*, which is the field *name* of *parent*."""
    changed: dict[str, Any] = {}
    if isinstance(child, ast.stmt):
        body = getattr(child, "body", None)
        last = body[0].lineno - 1 if body else (child.end_lineno or child.lineno)
        changed["lines"] = range(child.lineno, max(last, child.lineno) + 1)
        if not scope.in_function:
            changed["defines"] = _defined(child)
    if isinstance(parent, (*_FUNCTIONS, ast.ClassDef)) and name in {"body", "args"}:
        changed["function"] = f"{scope.function}.{parent.name}".lstrip(".")
        changed["in_function"] = isinstance(parent, _FUNCTIONS) and name == "body"
        if name == "args" and isinstance(parent, _FUNCTIONS):
            # A default is read when the function runs.
            changed["default_of"] = range(parent.body[0].lineno, (parent.end_lineno or 0) + 1)
    if isinstance(child, ast.Raise):
        changed["prose"] = True
    return Scope(**(vars(scope) | changed))


def _defined(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case _:
            return ""


def _replacements(
    node: ast.AST, parent: ast.AST, name: str, scope: Scope
) -> Iterator[tuple[str, ast.AST]]:
    """Yield possible replacements of *node*, with the operator's name."""
    if isinstance(node, ast.stmt):
        yield from _statement(node)
    elif isinstance(node, ast.expr):
        if name in {"test", "guard", "ifs"} and not _is_negated_otherwise(node):
            yield "negated condition", _negation(node)
        yield from _expression(node, scope)


def _is_negated_otherwise(node: ast.expr) -> bool:
    match node:
        case ast.Compare(ops=[operator]):
            return isinstance(operator, _NEGATED)
        case ast.Constant() | ast.UnaryOp(op=ast.Not()):
            return True
        case _:
            return False


def _negation(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _statement(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "removed statement", ast.Pass()
        case ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue() | ast.Raise():
            yield "removed statement", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield "removed statement", ast.Pass()
        case ast.AnnAssign(target=ast.Attribute() | ast.Subscript(), value=ast.expr()):
            yield "removed statement", ast.Pass()
        case ast.Return(value=None):
            yield "removed statement", ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "returned nothing", ast.Return(ast.Constant(None))
        case _:
            pass


def _expression(node: ast.expr, scope: Scope) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(left=left, ops=operators, comparators=right):
            for at, operator in enumerate(operators):
                other = [*operators[:at], _COMPARISONS[type(operator)](), *operators[at + 1 :]]
                yield "comparison", ast.Compare(left, other, right)
        case ast.BoolOp(op=operator, values=values):
            swapped = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "boolean operator", ast.BoolOp(swapped, values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negated condition", operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.Constant(value=value):
            yield from _constant(value, scope)
        case ast.Call():
            yield from _call(node)
        case _:
            pass


def _constant(value: object, scope: Scope) -> Iterator[tuple[str, ast.AST]]:
    match value:
        case bool():
            yield "constant", ast.Constant(not value)
        case int() | float():
            yield "constant", ast.Constant(value + 1)
        case str():
            if not (scope.prose and " " in value):
                yield "constant", ast.Constant(f"XX{value}")
        case bytes():
            yield "constant", ast.Constant(b"XX" + value)
        case _:
            pass


def _call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = _called(node)
    if isinstance(node.func, ast.Name) and name in _OTHER_FUNCTION:
        other = ast.Name(_OTHER_FUNCTION[name], ast.Load())
        yield "other function", ast.Call(other, node.args, node.keywords)
    elif len(node.args) > 1 and name not in _NOT_SWAPPED:
        first, second, *others = node.args
        starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        if not starred and ast.dump(first) != ast.dump(second):
            yield "swapped arguments", ast.Call(node.func, [second, first, *others], node.keywords)
