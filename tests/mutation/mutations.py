"""Small changes of a Python module, one at a time. Pure: it gets text and gives syntax trees."""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Types are checked by mypy, and what a class is made with seldom changes what it does.
NEVER = {"annotation", "returns", "decorator_list", "keywords of ClassDef", "format_spec", "type_params"}


@dataclass(frozen=True)
class Mutant:
    """One change: the lines that run it, what it changes, and the function or class around it ("" at the top of a
    module). `inside` says whether it runs when a function is called, not when the module is imported."""

    number: int
    function: str
    inside: bool
    first: int
    last: int
    before: str
    after: str


@dataclass(frozen=True)
class _Place:
    function: str
    inside: bool
    statement: ast.stmt | None


def mutants(source: str) -> list[Mutant]:
    """All changes of a module."""
    return [mutant for mutant, _ in _changed(source)]


def mutated(source: str, number: int) -> ast.Module:
    """The module with one change."""
    return next(tree for mutant, tree in _changed(source) if mutant.number == number)


def _changed(source: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Each change with the tree, which has it as long as nobody asks for the next."""
    tree, number = ast.parse(source), 0
    for place, parent, field, index, child in _children(tree, _Place("", False, None)):
        holder = child if isinstance(child, ast.stmt) else place.statement or child
        before = ast.unparse(holder)
        for new in _variants(child, parent):
            ast.fix_missing_locations(ast.copy_location(new, child))
            _put(parent, field, index, new)
            after = ast.unparse(new if holder is child else holder)
            if after != before:
                number += 1
                lines = child.lineno, child.end_lineno or child.lineno
                yield Mutant(number, place.function, place.inside, *lines, *_difference(before, after)), tree
            _put(parent, field, index, child)


Child = tuple[_Place, ast.AST, str, int | None, ast.expr | ast.stmt]


def _children(node: ast.AST, place: _Place) -> Iterator[Child]:
    """What may be changed below a node, and where it hangs."""
    if isinstance(node, ast.stmt):
        place = replace(place, statement=node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        place = replace(place, function=f"{place.function}.{node.name}".lstrip("."))
    for field, value in ast.iter_fields(node):
        if field in NEVER or f"{field} of {type(node).__name__}" in NEVER:
            continue
        if field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = replace(place, inside=True)
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_text_alone(node, child) or _is_type(node, field):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield place, node, field, index, child
            yield from _children(child, place)


def _is_text_alone(parent: ast.AST, child: ast.AST) -> bool:
    """A docstring, or a piece of an f-string, which is changed as a whole."""
    return isinstance(child, ast.Constant) and isinstance(parent, ast.Expr | ast.JoinedStr)


def _is_type(parent: ast.AST, field: str) -> bool:
    """Whether it stands in the brackets of a type: `Callable[[], None]`."""
    return isinstance(parent, ast.Subscript) and field == "slice" and ast.unparse(parent.value)[:1].isupper()


def _put(parent: ast.AST, field: str, index: int | None, child: ast.AST) -> None:
    if index is None:
        setattr(parent, field, child)
    else:
        getattr(parent, field)[index] = child


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    old, new = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in ("- ", "+ "))
    return "\n".join(old), "\n".join(new)


def _variants(node: ast.expr | ast.stmt, parent: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    elif isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                yield ast.Compare(node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.JoinedStr):
        yield ast.Constant("")
    elif isinstance(node, ast.Constant) and not (node.value is None and isinstance(parent, ast.Compare)):
        yield from _constants(node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    if getattr(parent, "test", None) is node or (isinstance(parent, ast.comprehension) and node in parent.ifs):
        yield from _negated(node)


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statement is left out, or returns nothing."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await | ast.Yield | ast.YieldFrom)
    kept = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if called or kept or isinstance(node, ast.Continue | ast.Break | ast.Raise | ast.AugAssign):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(ast.Constant(None))


def _constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    elif isinstance(value, str):
        yield ast.Constant("" if value else "mutated")
    elif value is None:
        yield ast.Constant(0)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    """Another function of the same kind, two arguments the other way round, a named one left out."""
    function, arguments = node.func, node.args
    opposite = OPPOSITES.get(function.id) if isinstance(function, ast.Name) else None
    if opposite:
        renamed = ast.copy_location(ast.Name(opposite, ast.Load()), function)
        yield ast.Call(renamed, arguments, node.keywords)
    elif len(arguments) >= 2 and not any(isinstance(each, ast.Starred) for each in arguments[:2]):
        yield ast.Call(function, [arguments[1], arguments[0], *arguments[2:]], node.keywords)
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield ast.Call(function, arguments, [*node.keywords[:index], *node.keywords[index + 1 :]])


def _negated(node: ast.expr) -> Iterator[ast.expr]:
    """What the changes above do not turn round."""
    if not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        yield ast.UnaryOp(ast.Not(), node)
