"""Takes the seeds of the corpus from the golden snapshots: ``python -m tests.fuzz.make_corpus``.

Files that a campaign has found stay beside them; their names are digests, those of seeds begin with ``seed-``.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MOST_BYTES = 12_000


def put(target: str, name: str, data: bytes) -> None:
    if len(data) <= MOST_BYTES:
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        (CORPUS / target / f"seed-{name}").write_bytes(data)


def main() -> None:
    golden = HERE.parent / "golden" / "1"
    location = golden / "memory"
    put("envelope", "query", (location / "query.json").read_bytes())
    kinds: set[str] = set()
    for path in sorted((location / "log").iterdir()):
        body = json.loads(path.read_bytes())["body"]
        if body["entry"]["type"] not in kinds:
            kinds.add(body["entry"]["type"])
            for seq in (1, 2):
                put("log", f"{body['entry']['type']}-{seq}", json.dumps({**body, "seq": seq}).encode())
    for path in sorted(location.glob("snapshots/*/metadata.json"))[-1:]:
        metadata = json.loads(path.read_bytes())
        put("metadata", "whole", json.dumps(metadata, separators=(",", ":")).encode())
        for source in metadata["sources"]:
            source.update(state=None, sections=[])
        for subtask in (subtask for slot in metadata["slots"] for subtask in slot["subtasks"]):
            for part in ("states", "inflight", "splits"):
                subtask[part] = subtask.get(part, [])[:1]
            for number, entry in enumerate((*subtask["states"], *subtask["inflight"])):
                ref = entry["section"]
                data = (location / ref["path"]).read_bytes()[ref["offset"] : ref["offset"] + ref["length"]]
                put("section", f"{subtask['vertex']}-{subtask['index']}-{number}", data)
                put("parquet", f"stream-{subtask['vertex']}-{subtask['index']}-{number}", data)
        put("metadata", "small", json.dumps(metadata, separators=(",", ":")).encode())
    put("manifest", "golden", (golden / "portable" / "manifest.json").read_bytes())
    rows = pa.table({"__key_group": pa.array([1, 1, 2, 3, 3], pa.int16()), "k": list("abcde"), "n": [1, 2, None, 4, 5]})
    for name, options in {"v1": {}, "v2": {"data_page_version": "2.0"}, "small": {"row_group_size": 2}}.items():
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="none", use_dictionary=False, **options)
        put("parquet", name, sink.getvalue())


if __name__ == "__main__":
    main()
