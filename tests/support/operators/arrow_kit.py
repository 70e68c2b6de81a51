"""Vectorised processors for operators by hand: the same one in its own form, and key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.operators.python.user_code import PythonSettings
from penstock.operators.stateful.arrow_processor import ArrowStatefulProcessor, ArrowStatefulProcessorHandle
from penstock.operators.stateful.declaration import RowForm
from penstock.operators.stateful.group_state import PickledProcessor
from penstock.operators.stateful.per_key import PerKeyProcessor
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TimeMode
from tests.support.operators.stateful_kit import INPUT, OUTPUT, spec_of

FORMS = ["arrow", "per key"]


def arrow_spec_of(
    processor: ArrowStatefulProcessor,
    time_mode: TimeMode = TimeMode.NONE,
    form: str = "arrow",
    *,
    input_schema: pa.Schema = INPUT,
    output_schema: pa.Schema = OUTPUT,
    keys: tuple[int, ...] = (0,),
    time_zone: str = "UTC",
) -> TransformWithStateSpec:
    grouping = pa.schema([input_schema.field(position) for position in keys])
    adapter = PerKeyProcessor(
        processor,
        from_arrow_schema(input_schema),
        from_arrow_schema(output_schema),
        time_zone,
        from_arrow_schema(grouping),
    )
    spec = spec_of(adapter, time_mode, input_schema=input_schema, output_schema=output_schema, keys=keys)
    spec = replace(spec, settings=PythonSettings(time_zone=time_zone))
    if form == "per key":
        return spec
    return replace(spec, form=RowForm.ARROW, pickled=CloudPickleSerializer().dumps((PickledProcessor(processor).call,)))


class ArrowProcessor(ArrowStatefulProcessor):
    """Runs functions of the test: ``on_rows(self, keys, owners, rows, timers)`` and
    ``on_timers(self, keys, moments, timers)``."""

    def __init__(
        self,
        on_rows: Callable[..., Iterable[Any]] = lambda *_: (),
        on_init: Callable[..., Any] = lambda *_: None,
        on_timers: Callable[..., Iterable[Any]] = lambda *_: (),
        on_close: Callable[..., Any] = lambda *_: None,
    ) -> None:
        self.on_rows, self.on_init, self.on_timers, self.on_close = on_rows, on_init, on_timers, on_close

    def init(self, handle: ArrowStatefulProcessorHandle) -> None:
        self.handle = handle
        self.on_init(self, handle)

    def handleInputBatch(self, keys: Any, owners: Any, rows: Any, timerValues: Any) -> Iterable[Any]:  # noqa: N802, N803
        return self.on_rows(self, keys, owners, rows, timerValues)

    def handleExpiredTimers(self, keys: Any, moments: Any, timerValues: Any) -> Iterable[Any]:  # noqa: N802, N803
        return self.on_timers(self, keys, moments, timerValues)

    def close(self) -> None:
        self.on_close(self)


def said(ids: Any, words: Iterable[Any]) -> pa.RecordBatch:
    """A batch of ``OUTPUT``."""
    return pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.string()), pa.array(map(str, words), pa.string())], schema=OUTPUT
    )
