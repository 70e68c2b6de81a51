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
    (
        *("errors", "ids", "grammar", "plain_text", "config", "logs", "malloc", "private_files", "redaction"),
        *("decoding", "version"),
    ),
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


# One test for each rule, over all files: as many tests as files would take their time in every worker.


def test_imports_point_downwards() -> None:
    upward = [
        f"{module_of(path)} imports {name}, which is above"
        for path in FILES
        for name in imports_of(path)
        if name.startswith("penstock")
        and layer_of(name) < layer_of(module_of(path))
        and name not in CONTRACTS | type_checking_imports(path)
    ]
    assert not upward


def test_protocol_is_pure() -> None:
    files = [path for path in FILES if module_of(path).startswith("penstock.protocol")]
    assert len(files) > 10
    impure = [
        f"{module_of(path)} imports {name}"
        for path in files
        for name in imports_of(path)
        if name.split(".")[0] in IMPURE | {"pyarrow", "numpy", "pyspark"}
    ]
    assert not impure
    calls = [
        f"{path}:{node.lineno} calls {node.func.id}"
        for path in files
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "hash", "print"}
    ]
    assert not calls


def test_only_frontend_and_spark_touch_the_jvm() -> None:
    others = [path for path in FILES if not module_of(path).startswith(("penstock.frontend", "penstock.spark"))]
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
        if module_of(path) != "penstock.spark.jvm"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "_jvm"
    ]
    assert not asking, "say java_class(spark, name) of penstock.spark.jvm instead"


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
