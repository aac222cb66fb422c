"""Limits on the structure of the package: parameters, class names, import cycles, size of the command line."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import headscope
from headscope.study.result import Result

PACKAGE = Path(next(iter(headscope.__path__)))
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text("utf-8")) for file in FILES}
CONFIGS = {"config", "run", "reading", "data"}  # parameters of public functions that are configs
MOST_PARAMETERS = 10
MOST_PUBLIC_PARAMETERS = 6
COMMAND_LINES = 1800


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


def test_no_function_has_more_than_ten_parameters() -> None:
    long = [
        f"{file}:{function.lineno} {function.name}: {len(parameters(function))}"
        for file, tree in TREES.items()
        for function in functions(tree)
        if len(parameters(function)) > MOST_PARAMETERS
    ]
    assert not long


def test_public_functions_have_at_most_six_parameters_besides_configs() -> None:
    public = {(module, name) for name, module in headscope._WHERE.items()}
    checked, long = 0, []
    for file, tree in TREES.items():
        module = "headscope." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for node in getattr(tree, "body", []):
            if isinstance(node, ast.FunctionDef) and (module, node.name) in public:
                checked += 1
                names = [name for name in parameters(node) if name not in CONFIGS]
                if len(names) > MOST_PUBLIC_PARAMETERS:
                    long.append(f"{file} {node.name}: {names}")
    assert checked > 15
    assert not long


def test_no_two_public_classes_have_one_name() -> None:
    places = defaultdict(list)
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file}:{node.lineno}")
    assert not {name: where for name, where in places.items() if len(where) > 1}


def imports(file: str, tree: ast.AST) -> set[str]:
    """The modules of the package that a module imports, at its top or inside functions, as `package/module.py`."""
    result = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headscope"):
            base = (node.module or "").split(".")[1:]
            candidates = [[*base, alias.name] for alias in node.names] + [base]
            for parts in candidates:
                path = "/".join(parts)
                result |= {one for one in (f"{path}.py", f"{path}/__init__.py") if one in TREES}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and file != "__init__.py":
                path = argument.value.removeprefix("headscope.").replace(".", "/")
                result |= {one for one in (f"{path}.py", f"{path}/__init__.py") if one in TREES}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                path = "/".join(alias.name.split(".")[1:])
                result |= {one for one in (f"{path}.py", f"{path}/__init__.py") if one in TREES}
    return result - {file}


def without_type_checking(tree: ast.Module) -> ast.Module:
    """The module without what is imported for annotations only."""

    class Remove(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            is_typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return None if is_typing else node

    return ast.Module([Remove().visit(node) or ast.Pass() for node in tree.body], [])


def test_no_import_cycle() -> None:
    graph = {file: imports(file, without_type_checking(tree)) for file, tree in TREES.items()}
    cycles, state, stack = [], dict.fromkeys(graph, 0), []

    def visit(file: str) -> None:
        state[file] = 1
        stack.append(file)
        for other in sorted(graph[file]):
            if state[other] == 1:
                cycles.append([*stack[stack.index(other) :], other])
            elif state[other] == 0:
                visit(other)
        stack.pop()
        state[file] = 2

    for file in graph:
        if not state[file]:
            visit(file)
    assert not cycles


def test_the_command_line_stays_thin() -> None:
    lines = sum(
        len(file.read_text("utf-8").splitlines()) for file in (PACKAGE / "commands").glob("*.py")
    )
    assert lines < COMMAND_LINES


# Public functions whose result is not a `Result`
OTHER_RESULTS = {
    "encode": "batches, for `stream`",
    "fetch_model": "a path",
    "load": "a model",
    "serve": "a running server",
    "stream": "one pass of statistics, before there is a study",
    "verify_model": "nothing",
    "write": "a path",
}


def test_every_public_function_returns_a_result() -> None:
    others = set()
    for name in headscope.__all__:
        value = getattr(headscope, name)
        if not inspect.isfunction(value):
            continue
        hint = typing.get_type_hints(inspect.unwrap(value))["return"]
        if not (inspect.isclass(hint) and issubclass(hint, Result)):
            others.add(name)
    assert others == set(OTHER_RESULTS)


def test_results_have_tables_a_record_and_a_display() -> None:
    for name in headscope.__all__:
        getattr(headscope, name)  # imports the module of each result
    kinds = [Result]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 10
    for kind in kinds[1:]:
        source = inspect.getsource(kind) + inspect.getsource(kind.__mro__[1])
        assert "_repr_html_" in dir(kind)
        assert "write" in dir(kind)
        for name in ("tables", "record"):
            assert hasattr(kind, name) or re.search(rf"\b{name}: ", source), (kind, name)


def package_of(file: str) -> str:
    return file.partition("/")[0]


def names_used_elsewhere() -> set[tuple[str, str]]:
    """(file, name) of functions and classes that a file of another package imports, by itself or with its module."""
    used = set()
    for file, tree in TREES.items():
        modules: dict[str, str] = {}  # names of imported modules
        for node in ast.walk(tree):
            if not (
                isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headscope")
            ):
                continue
            base = "/".join((node.module or "").split(".")[1:])
            for alias in node.names:
                source = next((f for f in (f"{base}.py", f"{base}/__init__.py") if f in TREES), "")
                if f"{base}/{alias.name}.py" in TREES:
                    modules[alias.asname or alias.name] = f"{base}/{alias.name}.py"
                elif package_of(source) != package_of(file):
                    used.add((source, alias.name))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                source = modules.get(node.value.id, file)
                if package_of(source) != package_of(file):
                    used.add((source, node.attr))
    return used


def signatures(tree: ast.Module) -> Iterator[tuple[str, str, list[ast.expr | None]]]:
    """Name, name with the class, and annotations of functions, and of public fields and methods of classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.name, annotations(node)
        elif isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield node.name, f"{node.name}.{line.target.id}", [line.annotation]
                elif isinstance(line, ast.FunctionDef) and not line.name.startswith("_"):
                    yield node.name, f"{node.name}.{line.name}", annotations(line)


def annotations(function: ast.FunctionDef) -> list[ast.expr | None]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*(argument.annotation for argument in every), function.returns]


JSON = "JSON of a run record"
OPTIONS = "options of any config by name"
TORCH = "the form that torch requires"
PAGE = "JSON for the script of the page"
UNTYPED = {  # signatures with `dict[str, Any]` that other packages use, with the reason
    "atomic_dir: read_record": JSON,
    "config/edit_record: EditRecord.as_json": JSON,
    "api/installation: describe_installation": JSON,
    "config/learn_mask: LearnMaskConfig.complete": OPTIONS,
    "config/masks: read_parameters": "arguments of any function of a mask",
    "config/option: Config.complete": OPTIONS,
    "config/option: fill": OPTIONS,
    "config/option: kinds_of": OPTIONS,
    "config/option: record_options": OPTIONS,
    "model/checkpoint: read_config": "a configuration of transformers",
    "report/head_cards: cards_of": PAGE,
    "report/look/view: Look.record": JSON,
    "report/page/payload: describe_statistic": PAGE,
    "training/learnable_edit: LearnableEdit.parameter_groups": TORCH,
}


def test_no_untyped_dictionary_crosses_a_package_boundary() -> None:
    used = names_used_elsewhere()
    untyped = {
        f"{file.removesuffix('.py')}: {qualified}"
        for file, tree in TREES.items()
        for name, qualified, hints in signatures(tree)
        if (file, name) in used
        and any("dict[str, Any]" in ast.unparse(hint) for hint in hints if hint is not None)
    }
    assert untyped <= set(UNTYPED)
