"""Compiler of streaming DataFrames to a JobGraph. Only this layer and ``spark`` access the JVM."""

from penstock.planner.compiler import CompiledPlan, compile_outputs, compile_plan
from penstock.planner.conf import session_conf

__all__ = ["CompiledPlan", "compile_outputs", "compile_plan", "session_conf"]
