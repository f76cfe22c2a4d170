"""What an editor shows of the public API: every class, method, property, field and parameter of it
is described and annotated, and its exceptions are named as Python's are."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec
import pytest

from forewarn import client, testing
from forewarn.service.engine.catch_up import POLL_PATIENCE
from forewarn.testing import scenarios, timeline
from forewarn.testing.kit.machines import FIRST_POLL_WITHIN
from forewarn.testing.kit.service import START

MODULES = (testing, scenarios, timeline, client)
MADE_BY_USERS = {"Service", "Lanes", "Client", "AsyncClient"}  # whose constructors users call
SECTION = re.compile(r"^Args:\n((?:(?: +.*)?\n?)*)", re.MULTILINE)
PARAMETER = re.compile(r"^ {4}(\w+): \S", re.MULTILINE)
NOT_CHECKED = ("self", "cls")

PUBLIC = [
    pytest.param(module, name, id=f"{module.__name__}.{name}")
    for module in MODULES
    for name in module.__all__
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_everything_public_is_described_and_annotated(module: ModuleType, name: str) -> None:
    assert list(_problems(module, name)) == []


def test_exceptions_end_in_error() -> None:
    exceptions = [
        name
        for module in MODULES
        for name in module.__all__
        if isinstance(getattr(module, name), type) and issubclass(getattr(module, name), Exception)
    ]
    assert "RefusedError" in exceptions
    assert [name for name in exceptions if not name.endswith("Error")] == []


def test_no_signature_has_microseconds() -> None:
    """What is counted in microseconds inside is `core.time.Time` and `support.text.Duration`."""
    found = [
        f"{owner}.{name}"
        for module in MODULES
        for owner, name, annotation in _annotations(module)
        if re.search(r"\bTime\b|\bDurations\b", annotation)
    ]
    assert found == []


def test_a_default_that_an_editor_shows_by_its_name_is_described() -> None:
    """An editor shows `timeout=POLL_PATIENCE`, which tells nobody how long that is."""
    assert sorted(_undescribed_defaults()) == []
    for function, text in (
        (testing.Clock.play, f"by default {POLL_PATIENCE:g} seconds"),
        (testing.Machine.wait_for_poll, f"by default {FIRST_POLL_WITHIN:g} seconds"),
        (testing.Service.play_scenario, f"by default {FIRST_POLL_WITHIN:g} seconds"),
        (testing.run_scenario, f"by default {POLL_PATIENCE:g} seconds"),
        (testing.Service, f"by default {START:%Y-%m-%d %H:%M UTC}"),
    ):
        assert text in " ".join((function.__doc__ or "").split())


def _undescribed_defaults() -> Iterator[str]:
    for module in (testing, scenarios, timeline):
        for name in module.__all__:
            value = getattr(module, name)
            functions: dict[str, Any] = {name: value} if inspect.isfunction(value) else {}
            if inspect.isclass(value):
                functions = {
                    f"{name}.{n}": f
                    for n, f in vars(value).items()
                    if inspect.isfunction(f) and not _private(n)
                }
                if name in MADE_BY_USERS:
                    functions[name] = value
            for full_name, function in functions.items():
                text = " ".join((inspect.getdoc(function) or "").split())
                for parameter in _with_named_default(value, function):
                    described = re.search(rf" {parameter}: .*?(?= \w+: |$)", text)
                    if described is None or "default" not in described[0]:
                        yield f"{full_name}({parameter})"


def _with_named_default(owner: Any, function: Any) -> Iterator[str]:
    node = _node(owner)
    if isinstance(node, ast.ClassDef):
        name = "__init__" if inspect.isclass(function) else function.__name__
        node = next(
            item
            for item in reversed(node.body)
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name
        )
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = [*[None] * (len(positional) - len(node.args.defaults)), *node.args.defaults]
    pairs = [*zip(positional, defaults, strict=True)]
    pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    for parameter, default in pairs:
        if isinstance(default, ast.Name | ast.Attribute | ast.Subscript):
            yield parameter.arg


def test_no_signature_names_private_modules() -> None:
    """A type checker would look into all of it, and find types that it only infers."""
    found = [
        f"{name}.{function.__name__}"
        for name in testing.__all__
        if inspect.isclass(value := getattr(testing, name))
        for function in vars(value).values()
        if inspect.isfunction(function)
        and (function.__name__ == "__init__" or not _private(function.__name__))
        and re.search(r"\b(Session|Requests|Node|Stage)\b", str(function.__annotations__))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class A: pass", ["A has no docstring"]),
        ('class A:\n  """A."""\n  x: int', ["A.x has no docstring"]),
        ('class A:\n  """A."""\n  def __init__(self): self.x = 1', ["A.x is not annotated"]),
        ('class A:\n  """A."""\n  def f(self): pass', ["A.f has no docstring", "A.f: no return"]),
        (
            'class A:\n  """A."""\n  def f(self, a: int, b) -> None:\n    """F."""',
            ["A.f(a) is not described", "A.f(b) is not annotated", "A.f(b) is not described"],
        ),
        (
            'class A:\n  """A."""\n  def f(self) -> None:\n    """F."""\n    raise E("no")',
            ["A.f raises E, which is not described"],
        ),
        (
            'class A:\n  """A."""\n  x: int\n  """X."""\n  def f(self, a: int) -> None:\n'
            '    """F.\n\n    Args:\n        a: One.\n    """\n  def _g(self): pass',
            [],
        ),
    ],
)
def test_missing_docstrings_and_annotations_are_found(source: str, expected: list[str]) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    problems = [problem.replace(" annotation", "") for problem in _class_problems(node, "A")]
    assert sorted(problems) == sorted(expected)


def _problems(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if inspect.isclass(value):
        for base in inspect.getmro(value):
            if base.__module__.startswith("forewarn."):
                yield from _class_problems(_node(base), base.__name__)
    elif inspect.isfunction(value):
        yield from _function_problems(_node(value), name)
    else:
        if not _followed_by_docstring(_tree(_origin(module, name)).body, name):
            yield f"{name} has no docstring"


def _class_problems(node: ast.ClassDef, name: str) -> Iterator[str]:
    if not ast.get_docstring(node):
        yield f"{name} has no docstring"
    annotated = set()
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            annotated.add(item.target.id)
            if not _private(item.target.id) and not _followed_by_docstring(
                node.body, item.target.id
            ):
                yield f"{name}.{item.target.id} has no docstring"
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            if item.name == "__init__":
                if name in MADE_BY_USERS:
                    yield from _function_problems(item, name, ast.get_docstring(node) or "")
            elif not _private(item.name) and not _is_overload(item):
                yield from _function_problems(item, f"{name}.{item.name}")
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                    and not _private(target.attr)
                    and target.attr not in annotated
                ):
                    yield f"{name}.{target.attr} is not annotated"


def _function_problems(
    node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, docstring: str | None = None
) -> Iterator[str]:
    text = docstring if docstring is not None else ast.get_docstring(node)
    if not text:
        yield f"{name} has no docstring"
    if node.returns is None:
        yield f"{name}: no return annotation"
    section = SECTION.search(f"{text or ''}\n")
    described = set(PARAMETER.findall(section[1])) if section else set()
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    parameters = [item for item in parameters if item.arg not in NOT_CHECKED]
    for parameter in parameters:
        if parameter.annotation is None:
            yield f"{name}({parameter.arg}) is not annotated"
        if text and parameter.arg not in described:
            yield f"{name}({parameter.arg}) is not described"
    for error in sorted({*_raised(node)}):
        if text and not re.search(
            rf"^Raises:\n(?: +.*\n)*? +{error}: \S", f"{text}\n", re.MULTILINE
        ):
            yield f"{name} raises {error}, which is not described"
    if unknown := described - {parameter.arg for parameter in parameters}:
        yield f"{name} has no parameter {', '.join(sorted(unknown))}"


def _raised(node: ast.AST) -> Iterator[str]:
    """Yield the exceptions that a function raises itself, or when the service refuses."""
    for inner in ast.walk(node):
        match inner:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=error))):
                yield error
            case ast.Call(func=ast.Name(id="event_from" | "events_from")):
                yield "RefusedError"


def _annotations(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    for name in module.__all__:
        value = getattr(module, name)
        functions: dict[str, Any] = {name: value} if inspect.isfunction(value) else {}
        if inspect.isclass(value):
            functions = {n: f for n, f in vars(value).items() if inspect.isfunction(f)}
            functions = {n: f for n, f in functions.items() if not _private(n)}
            if name in MADE_BY_USERS:
                functions["__init__"] = vars(value)["__init__"]
            if not issubclass(value, msgspec.Struct):
                for field, annotation in vars(value).get("__annotations__", {}).items():
                    yield name, field, str(annotation)
        for function_name, function in functions.items():
            for parameter, annotation in function.__annotations__.items():
                yield f"{name}.{function_name}", parameter, str(annotation)


def _origin(module: ModuleType, name: str) -> ModuleType:
    """Return the module in which a value is defined that does not know it."""
    path = getattr(module, "_MODULES", {}).get(name)
    if path is not None and not path.startswith("forewarn."):
        path = f"{module.__name__}.{path}"
    if path is None:
        (path,) = re.findall(
            rf"^from ([\w.]+) import (?:.*|\([^)]*)\b{name}\b",
            inspect.getsource(module),
            re.MULTILINE,
        )
    return import_module(path)


@cache
def _tree(module: ModuleType | None) -> ast.Module:
    assert module is not None
    return ast.parse(inspect.getsource(module))


def _node(value: Any) -> Any:
    """Return the definition of a class or function."""
    name = value.__name__
    for node in _tree(inspect.getmodule(value)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    raise LookupError(name)


def _followed_by_docstring(body: list[ast.stmt], name: str) -> bool:
    for item, following in zip(body, [*body[1:], None], strict=True):
        targets = item.targets if isinstance(item, ast.Assign) else []
        if isinstance(item, ast.AnnAssign):
            targets = [item.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return (
                isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            )
    return False


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "overload" for item in node.decorator_list)


def _private(name: str) -> bool:
    return name.startswith("_")
