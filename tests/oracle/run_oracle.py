"""Random plans against Spark, as many as asked for: ``python tests/oracle/run_oracle.py N [--seed S]``: two of three
against the batch, the others with late rows against Structured Streaming.

Prints what was covered and what was refused. A plan that fails is made as small as possible and printed as Python, to
be kept in ``test_oracle.KEPT``; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from hypothesis import strategies as st
from late_plans import LateData, late_plans
from oracle_plans import Plan, kinds_of, plans
from oracle_runs import run, run_late
from pyspark.sql import SparkSession

import penstock
from penstock.errors import NotSupported

KINDS = {None: st.one_of(plans(), plans(), late_plans()), "batch": plans(), "late": late_plans()}


def oracle(spark: SparkSession, count: int, first_seed: int, drawn: st.SearchStrategy[Plan]) -> int:
    """So many plans; the exit code."""
    covered: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failing: list[Plan] = []

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
    def check(plan: Plan) -> None:
        with tempfile.TemporaryDirectory(prefix="penstock-oracle-") as folder:
            try:
                if isinstance(plan.data, LateData):
                    covered["rows late for Spark"] += run_late(spark, plan, Path(folder))
                else:
                    run(spark, plan, Path(folder))
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
        late = isinstance(plan.data, LateData)
        covered.update(["plans", *(["with late rows"] if late else []), *kinds_of(plan)])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("batch", "late"))
    asked = parser.parse_args()
    spark = penstock.session()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        code = oracle(spark, asked.count, asked.seed, KINDS[asked.only])
    finally:
        spark.stop()
    sys.exit(code)


if __name__ == "__main__":
    main()
