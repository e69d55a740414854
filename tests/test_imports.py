"""The floors of docs/design.md, read off the import statements: imports go down only, and Hydra stays at the top."""

import ast
import functools
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "seqlab"
MODULES = {
    ".".join(("seqlab", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
}

FLOORS = (
    ("seqlab",),
    ("seqlab.types", "seqlab.files"),
    ("seqlab.nn", "seqlab.data", "seqlab.tasks"),
    ("seqlab.models", "seqlab.decoding"),
    ("seqlab.training", "seqlab.evaluation"),
    ("seqlab.build", "seqlab.cli", "seqlab.overrides", "seqlab.analysis"),
    ("seqlab.restore", "seqlab.pretrained"),
    ("seqlab.train", "seqlab.evaluate", "seqlab.generate", "seqlab.report", "seqlab.analyze", "seqlab.dashboard"),
)
MAY_USE_HYDRA = (
    "seqlab.build",
    "seqlab.cli",
    "seqlab.overrides",
    "seqlab.restore",
    "seqlab.pretrained",
    "seqlab.train",
    "seqlab.evaluate",
    "seqlab.generate",
    "seqlab.analyze",
)
NAMED_BY_YAML_ALONE = {
    target
    for group in ("task", "model/cell")
    for file in (PACKAGE.parent / "conf" / group).glob("*.yaml")
    for target in re.findall(r"_target_: (seqlab\.[\w.]+)\.\w+", file.read_text(encoding="utf-8"))
}


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def floor(module: str) -> int:
    fitting = [(len(part), level) for level, parts in enumerate(FLOORS) for part in parts if inside(module, part)]
    return max(fitting)[1]


def imports(tree: ast.AST) -> set[str]:
    """The modules that the statements in a tree import; of `from package import name`, the module that name is."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in names if name in MODULES} or {node.module}
    return found


@functools.cache
def tree_of(module: str) -> ast.AST:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def imports_of(module: str) -> set[str]:
    return imports(tree_of(module))


def inner(module: str) -> set[str]:
    return {name for name in imports_of(module) if inside(name, "seqlab")}


@pytest.mark.parametrize("module", MODULES)
def test_module_has_a_floor_of_its_own(module):
    assert floor(module) > 0 or module == "seqlab", f"{module} is on no floor of docs/design.md"


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down_or_stay_on_the_floor(module):
    up = {name for name in inner(module) if floor(name) > floor(module)}
    assert not up, f"{module} imports from a floor above: {up}"


def test_imports_make_no_circle() -> None:
    open_modules: list[str] = []
    done: set[str] = set()

    def visit(module: str) -> None:
        assert module not in open_modules, f"a circle: {' -> '.join([*open_modules, module])}"
        if module not in done:
            open_modules.append(module)
            for name in sorted(inner(module)):
                visit(name)
            done.add(open_modules.pop())

    for module in MODULES:
        visit(module)


@pytest.mark.parametrize("module", [module for module in MODULES if module not in MAY_USE_HYDRA])
def test_hydra_is_known_to_the_top_alone(module):
    assert not {name for name in imports_of(module) if name.split(".")[0] in ("hydra", "omegaconf")}


@pytest.mark.parametrize("module", MODULES)
def test_cells_and_tasks_are_named_by_yaml_alone(module):
    named = inner(module) & NAMED_BY_YAML_ALONE
    assert not named, f"{module} imports {named}, which YAML names"


def test_yaml_names_cells_and_tasks():
    assert {module.rpartition(".")[0] for module in NAMED_BY_YAML_ALONE} == {"seqlab.nn.cells", "seqlab.tasks"}
    assert set(MODULES) >= NAMED_BY_YAML_ALONE


@pytest.mark.parametrize("module", MODULES)
def test_seqlab_is_imported_at_the_top_of_a_module(module):
    functions = [node for node in ast.walk(tree_of(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    hidden = {name for function in functions for name in imports(function) if inside(name, "seqlab")}
    assert not hidden, f"{module} imports {hidden} inside a function"
