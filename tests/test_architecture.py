"""The house rules that a machine can check: layers, purity of ``protocol/``, sizes, public names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import penstock

SOURCE = Path(__file__).parent.parent / "src" / "penstock"
FILES = sorted(SOURCE.rglob("*.py"))
PYTHON_FILES = FILES + sorted(Path(__file__).parent.rglob("*.py"))

# Top to bottom: a module imports only from its own layer or from lower ones.
LAYERS = [
    ("cli",),
    ("rest",),
    ("testing",),
    ("spark_checkpoint",),
    ("query",),
    ("spark_data",),
    ("frontend",),
    ("spark",),
    ("runtime",),
    ("connectors",),
    ("snapshot",),
    ("operators",),
    ("state",),
    ("graph",),
    ("protocol",),
    ("errors", "ids", "config", "logs", "malloc", "version"),
]
# Contract modules that hold plain data only and may be named from anywhere above ``protocol``.
CONTRACTS = {
    "penstock.connectors.base",
    "penstock.operators.base",
    "penstock.snapshot.model",
    "penstock.graph.model",
    "penstock.protocol.elements",
}
IMPURE = {
    "time", "random", "threading", "asyncio", "socket", "os", "pathlib", "subprocess", "selectors", "secrets", "uuid",
    "datetime", "multiprocessing", "tempfile", "io", "shutil", "signal",
}  # fmt: skip
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


def imports_of(path: Path) -> list[str]:
    names: list[str] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module]
    return names


def type_checking_imports(path: Path) -> set[str]:
    return {
        inner.module
        for node in nodes_of(path)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and inner.module
    }


def module_of(path: Path) -> str:
    parts = ["penstock", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_downwards(path: Path) -> None:
    module, allowed = module_of(path), CONTRACTS | type_checking_imports(path)
    upward = [
        name
        for name in imports_of(path)
        if name.startswith("penstock") and name not in allowed and layer_of(name) < layer_of(module)
    ]
    assert not upward, f"{module} imports from above: {upward}"


@pytest.mark.parametrize("path", sorted((SOURCE / "protocol").rglob("*.py")), ids=module_of)
def test_protocol_is_pure(path: Path) -> None:
    impure = [name for name in imports_of(path) if name.split(".")[0] in IMPURE | {"pyarrow", "numpy", "pyspark"}]
    assert not impure, f"{module_of(path)} imports {impure}"
    calls = [
        node.lineno
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "hash", "print"}
    ]
    assert not calls, f"{module_of(path)} calls open, hash or print in lines {calls}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_only_frontend_and_spark_touch_the_jvm(path: Path) -> None:
    module = module_of(path)
    if module.startswith(("penstock.frontend", "penstock.spark")):
        return
    touched = [name for name in imports_of(path) if name.startswith("py4j")]
    assert not touched
    attributes = {n.attr for n in nodes_of(path) if isinstance(n, ast.Attribute)}
    assert not attributes & {"_jdf", "_jvm", "_jsparkSession", "_jsc"}, f"{module} touches the JVM"


@pytest.mark.parametrize("path", PYTHON_FILES, ids=str)
def test_sizes(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES, f"{path} is too long"
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{path}: {node.name} has {lines} lines"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_swallowed_errors_and_no_open_ends(path: Path) -> None:
    for node in nodes_of(path):
        if isinstance(node, ast.ExceptHandler):
            assert not (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)), f"{path}:{node.lineno}"
            assert node.type is not None, f"{path}:{node.lineno}: bare except"


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
