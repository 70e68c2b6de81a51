"""The way from a plan's root to its stream, past the static sides of joins, or to where several streams meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.catalyst.jvm import java_seq
from penstock.catalyst.trees import JavaTree, children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def streams_below(node: JavaTree) -> list[JavaTree]:
    """The inputs of a node that are streams."""
    return [child for child in children(node) if child.isStreaming()]


def stream_line(root: JavaTree) -> list[JavaTree]:
    """The nodes from a streaming plan's root to its source, or to the first one with several streams below it."""
    nodes = [root]
    while len(below := streams_below(nodes[-1])) == 1:
        nodes += below
    return nodes


def put_on(spark: SparkSession, node: JavaTree, stream: JavaTree) -> JavaTree:
    """The same node over another stream; a static side stays."""
    inputs = [stream if child.isStreaming() else child for child in children(node)]
    return node.withNewChildren(java_seq(spark, inputs))
