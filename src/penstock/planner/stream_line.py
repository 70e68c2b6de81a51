"""Path from a plan's root to its stream, or to the node where several streams meet. Static sides are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.catalyst.jvm import java_seq
from penstock.catalyst.trees import JavaTree, children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def streams_below(node: JavaTree) -> list[JavaTree]:
    """Return the inputs of a node that are streams."""
    return [child for child in children(node) if child.isStreaming()]


def stream_line(root: JavaTree) -> list[JavaTree]:
    """Return the nodes from a plan's root to its source, or to the first node with several streams below it."""
    nodes = [root]
    while len(below := streams_below(nodes[-1])) == 1:
        nodes += below
    return nodes


def put_on(spark: SparkSession, node: JavaTree, stream: JavaTree) -> JavaTree:
    """Return the same node over another stream. Static sides stay."""
    inputs = [stream if child.isStreaming() else child for child in children(node)]
    return node.withNewChildren(java_seq(spark, inputs))
