"""Random plans against Spark, as many as asked for: ``python -m tests.oracle.run_oracle N [--seed S]``: half of
them against the batch, a quarter with late rows and a quarter with stateful Python against Structured Streaming.

Prints what was covered and what was refused. A plan that fails is made as small as possible and printed as Python, to
be kept in ``test_oracle.KEPT`` or ``test_processor_oracle.KEPT``; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import penstock
from penstock.errors import NotSupported
from tests.oracle.late_plans import LateData, late_plans
from tests.oracle.oracle_plans import Plan, kinds_of, plans
from tests.oracle.oracle_runs import run, run_late
from tests.oracle.processor_plans import ProcessorPlan, processor_kinds, processor_plans
from tests.oracle.processor_runs import run_processor

KINDS = {"batch": plans(), "late": late_plans(), "processors": processor_plans()}
ALL = st.one_of(plans(), plans(), late_plans(), processor_plans())


def oracle(spark: SparkSession, count: int, first_seed: int, drawn: st.SearchStrategy[Plan | ProcessorPlan]) -> int:
    """So many plans; the exit code."""
    covered: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failing: list[Plan | ProcessorPlan] = []

    @seed(first_seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(drawn)
    def check(plan: Plan | ProcessorPlan) -> None:
        with tempfile.TemporaryDirectory(prefix="penstock-oracle-") as folder:
            try:
                if isinstance(plan, ProcessorPlan):
                    run_processor(spark, plan, Path(folder))
                elif isinstance(plan.data, LateData):
                    covered["rows late for Spark"] += run_late(spark, plan, Path(folder))
                else:
                    run(spark, plan, Path(folder))
            except StreamingQueryException as error:
                if not isinstance(plan, ProcessorPlan):
                    raise
                refused[f"by Spark: {' '.join(str(error).partition('=== Streaming Query')[0].split())[-110:]}"] += 1
                return
            except NotSupported as error:
                refused[str(error).splitlines()[0][:120]] += 1
                return
            except Exception as error:
                if not failing:
                    print(
                        f"\nFAILED: {type(error).__name__}: {str(error)[:2000]}\n{plan!r}\nmaking it small", flush=True
                    )
                failing.append(plan)
                raise
        covered.update(["plans", *_covered(plan)])
        print(f"\r{covered['plans']} plans", end="", file=sys.stderr, flush=True)

    try:
        check()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the plan does
        print(f"\nFAILED: {type(error).__name__}: {str(error)[:2000]}\n{failing[-1]!r}")
    finally:  # also where Ctrl-C ends it
        print(file=sys.stderr)
        for table in (covered, refused):
            for what, number in table.most_common():
                print(f"{number:>7}  {what}")
    return 1 if failing else 0


def _covered(plan: Plan | ProcessorPlan) -> list[str]:
    if isinstance(plan, ProcessorPlan):
        return ["with stateful Python", *processor_kinds(plan)]
    return [*(["with late rows"] if isinstance(plan.data, LateData) else []), *kinds_of(plan)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=tuple(KINDS))
    asked = parser.parse_args()
    spark = penstock.session()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        code = oracle(spark, asked.count, asked.seed, KINDS.get(asked.only, ALL))
    finally:
        spark.stop()
    sys.exit(code)


if __name__ == "__main__":
    main()
