"""The house rules that a machine can check: layers, circles, purity, sizes, public names."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

import penstock
from tests.support.places import ROOT

SOURCE = ROOT / "src"
FILES = sorted((SOURCE / "penstock").rglob("*.py"))
SIMULATOR_FILES = sorted((ROOT / "simulator").rglob("*.py"))
PYTHON_FILES = FILES + SIMULATOR_FILES + sorted((ROOT / "tests").rglob("*.py"))

# Top to bottom: a module imports only from its own layer or from lower ones.
LAYERS = [
    ("cli",),
    ("testing",),
    ("interop",),
    ("api",),
    ("rest",),
    ("queries",),
    ("planner",),
    ("spark",),
    ("coordinator",),
    ("worker",),
    ("network",),
    ("connectors",),
    ("snapshots",),
    ("operators",),
    ("functions",),
    ("catalyst",),
    ("state",),
    ("protocol",),
    ("config",),
    ("model",),
    (
        "errors",
        "grammar",
        "plain_text",
        "logs",
        "malloc",
        "private_files",
        "redaction",
        "decoding",
        "thrift_compact",
        "version",
    ),
]
BENCHMARK_LAYERS = ("reports", "suites", "peers", "lib")
TYPES_FROM_ABOVE = {
    ("penstock.model.job_graph", "penstock.connectors.base"): "a graph holds the sources and sinks that it runs",
    ("penstock.model.job_graph", "penstock.operators.base"): "OperatorSpec.create returns an operator",
}
"""Imports of types alone that point upwards, with the reason."""
CIRCLES_OF_TYPES = {
    "simulator.": "the parts of the simulated world know the world that holds them",
}
"""Circles that only a type checker sees, by what the names of their modules begin with, with the reason."""
PURE = ("penstock.model", "penstock.protocol", "penstock.coordinator.machines")
"""Packages that load where none of ``HEAVY`` can be imported."""
HEAVY = ("pyarrow", "numpy", "pandas", "pyspark", "py4j")
IMPURE = {
    "time", "random", "threading", "asyncio", "socket", "os", "pathlib", "subprocess", "selectors", "secrets", "uuid",
    "datetime", "multiprocessing", "tempfile", "io", "shutil", "signal",
}  # fmt: skip
JVM = ("penstock.catalyst", "penstock.planner", "penstock.spark")
"""Packages that touch the JVM."""
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70


def layer_of(module: str) -> int:
    part = module.split(".")[1] if "." in module else ""
    for level, names in enumerate(LAYERS):
        if part in names:
            return level
    return -1  # the package itself: on top of everything


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    """They are large, and whatever runs next in this process would have them looked through for garbage."""
    yield
    nodes_of.cache_clear()


def imports_of(path: Path, *, types: bool = True) -> set[str]:
    """Return the modules that a module imports anywhere, in functions too.

    Args:
        types: include imports of types alone, below ``if TYPE_CHECKING``.
    """
    only_types = {id(node) for block in nodes_of(path) if is_type_checking(block) for node in ast.walk(block)}
    names: set[str] = set()
    for node in nodes_of(path):
        if not types and id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (full & MODULES) or {node.module}
    return names


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES + SIMULATOR_FILES}


# One test for each rule, over all files: as many tests as files would take their time in every worker.


def upward_imports(*, types: bool) -> set[tuple[str, str]]:
    return {
        (module_of(path), name)
        for path in FILES
        for name in imports_of(path, types=types)
        if name.startswith("penstock") and layer_of(name) < layer_of(module_of(path))
    }


def test_imports_point_downwards() -> None:
    assert not upward_imports(types=False)
    assert upward_imports(types=True) == set(TYPES_FROM_ABOVE)


def test_the_package_does_not_need_the_repository() -> None:
    """The simulator and the benchmarks are not installed with it."""
    where = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["where"]
    packaged = {name.partition(".")[0] for folder in where for name in find_namespace_packages(str(ROOT / folder))}
    assert packaged == {"penstock", "pyspark_penstock"}
    repository = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert repository >= {"simulator", "benchmarks"}
    needed = [
        f"{module_of(path)} imports {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in imports_of(path)
        if name.partition(".")[0] in repository
    ]
    assert not needed


def test_imports_of_benchmarks_point_downwards() -> None:
    layers = [f"benchmarks.{name}" for name in BENCHMARK_LAYERS]
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for lower, layer in enumerate(layers)
        for path in sorted((ROOT / layer.replace(".", "/")).rglob("*.py"))
        for name in imports_of(path)
        if f"{name}.".startswith(tuple(f"{upper}." for upper in layers[:lower]))
    ]
    assert not upward


def test_no_upper_layer_is_put_into_a_lower_one() -> None:
    """A module neither names one of an upper layer in a text, to import it later, nor sets what another module has."""
    files = sorted(SOURCE.rglob("*.py"))
    named = {
        (module_of(path), node.value)
        for path in files
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and node.value in MODULES and layer_of(node.value) < layer_of(module_of(path))
    }
    assert not [one for one in named if one[1] != "penstock"]
    assert not [f"{path}:{line}" for path in files for line in sets_of_imported(path)]


def sets_of_imported(path: Path) -> Iterator[int]:
    """Yield the lines that assign to an attribute of something imported from this package."""
    imported = {
        alias.asname or alias.name
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock")
        for alias in node.names
    }
    imported |= {
        alias.asname or "penstock"
        for node in nodes_of(path)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.split(".")[0] == "penstock"
    }
    for node in nodes_of(path):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            owner = target
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(target, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in imported:
                yield node.lineno


def test_attributes_that_a_pickle_replaces_exist() -> None:
    """``__getstate__`` names attributes in strings, which a renaming tool does not see: the object would be shipped."""
    missing = [
        f"{path}: {owner.name}.{key.value}"
        for path in FILES
        for owner in nodes_of(path)
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.name == "__getstate__"
        for literal in ast.walk(method)
        if isinstance(literal, ast.Dict)
        for key in literal.keys
        if isinstance(key, ast.Constant) and key.value not in attributes_of(owner)
    ]
    assert not missing


def attributes_of(owner: ast.ClassDef) -> set[str]:
    """Return the names that the methods of a class assign to ``self``, and its fields."""
    fields = {
        node.target.id for node in owner.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return fields | {
        node.attr for node in ast.walk(owner) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def circles(*, types: bool) -> list[tuple[str, ...]]:
    """Return the circles of modules that import each other. Each is cut before the next one is looked for."""
    imports = {
        module_of(path): (imports_of(path, types=types) & MODULES) - {module_of(path)}
        for path in FILES + SIMULATOR_FILES
    }
    found = []
    while True:
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            imported, importing, *_ = error.args[1]
            found.append(tuple(error.args[1]))
            imports[importing] -= {imported}
        else:
            return found


def test_no_modules_import_each_other() -> None:
    assert not circles(types=False)
    known = tuple(CIRCLES_OF_TYPES)
    assert [circle for circle in circles(types=True) if not all(name.startswith(known) for name in circle)] == []


def test_pure_packages_load_without_arrow() -> None:
    program = f"""
import importlib, pkgutil, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
for package in map(importlib.import_module, {PURE}):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pure_packages_have_no_effects() -> None:
    files = [path for path in FILES if module_of(path).startswith(PURE)]
    assert len(files) > 20
    impure = [
        f"{module_of(path)} imports {name}"
        for path in files
        for name in imports_of(path)
        if name.split(".")[0] in IMPURE
    ]
    assert not impure
    calls = [
        f"{path}:{node.lineno} calls {node.func.id}"
        for path in files
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "hash", "print"}
    ]
    assert not calls


def test_few_packages_touch_the_jvm() -> None:
    others = [path for path in FILES if not module_of(path).startswith(JVM)]
    touching = [
        f"{module_of(path)} imports {name}" for path in others for name in imports_of(path) if name.startswith("py4j")
    ]
    touching += [
        f"{path}:{node.lineno} touches {node.attr}"
        for path in others
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in {"_jdf", "_jvm", "_jsparkSession", "_jsc"}
    ]
    assert not touching


def test_names_of_the_jvm_are_had_without_asking_it() -> None:
    """Each part of ``spark._jvm.org.apache...`` is looked for in all of Spark's jars."""
    asking = [
        f"{path}:{node.lineno}"
        for path in FILES
        if module_of(path) != "penstock.catalyst.jvm"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "_jvm"
    ]
    assert not asking, "say java_class(spark, name) of penstock.catalyst.jvm instead"


def test_sizes() -> None:
    long = [str(path) for path in PYTHON_FILES if len(path.read_text().splitlines()) > MAX_FILE_LINES]
    assert not long, "files are too long"
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in PYTHON_FILES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long, "functions are too long"


def test_no_swallowed_errors_and_no_open_ends() -> None:
    handlers = [
        (f"{path}:{node.lineno}", node)
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.ExceptHandler)
    ]
    assert [at for at, node in handlers if len(node.body) == 1 and isinstance(node.body[0], ast.Pass)] == []
    assert [at for at, node in handlers if node.type is None] == [], "bare except"


def test_public_names() -> None:
    assert sorted(penstock.__all__) == [
        "ArrowStatefulProcessor",
        "ArrowStatefulProcessorHandle",
        "ArrowValueState",
        "DataStreamWriter",
        "SnapshotWriter",
        "StreamingQuery",
        "__version__",
        "explain",
        "exportSparkOffsets",
        "importSparkCheckpoint",
        "late",
        "named",
        "readStream",
        "serve",
        "session",
        "start",
        "streams",
        "transformWithStateInArrow",
        "writeStream",
    ]
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None


MACHINES = {"protocol": "unit/protocol", "coordinator/machines": "unit/coordinator/machines"}
VALUES_ONLY = {"checkpoint_events"}
"""Modules of the folders of machines that declare values: they have no behavior to test."""


def test_every_machine_has_a_test_file_of_its_name() -> None:
    missing = [
        f"tests/{tests}/test_{module.stem}.py"
        for folder, tests in MACHINES.items()
        for module in sorted((SOURCE / "penstock" / folder).glob("[!_]*.py"))
        if module.stem not in VALUES_ONLY and not (ROOT / "tests" / tests / f"test_{module.stem}.py").exists()
    ]
    assert not missing, "a machine is tested where its name says; other aspects go to test_<machine>_<aspect>.py"


def test_the_root_of_the_tests_holds_folders_alone() -> None:
    files = {path.name for path in (ROOT / "tests").iterdir() if path.is_file()}
    assert files == {"conftest.py"}
