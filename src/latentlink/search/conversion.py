"""Convert files of vectors into another space: sharded, streamed, resumable, the same bytes at every run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latentlink import _checks, _files
from latentlink._processes import Runner, run_here
from latentlink.io import BATCH_ROWS, SHARD_ROWS, HashingStream, arrow_writer, open_vectors
from latentlink.search.gate import Space, shared

FORMAT = 2


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` of one file, which become one file of the output.

    Through all files, the first of them is row `number`.
    """

    name: str
    file: str
    start: int
    stop: int
    number: int


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs to write one shard; the same on this machine and on a cluster."""

    shard: Shard
    folder: str
    space: Any
    source: str
    target: str | None
    batch_rows: int
    vector_column: str | None
    id_column: str | None
    quarantine: bool

    def __call__(self) -> bytes:
        """Write the shard and its record unless both stand already, and return the record as JSON."""
        return json.dumps(self._record()).encode()

    def _record(self) -> dict[str, Any]:
        folder = Path(self.folder)
        target = folder / self.shard.name
        record_path = target.with_suffix(".json")
        if record_path.is_file() and target.is_file():
            record: dict[str, Any] = _files.read_json(record_path)
            if _files.sha256(target) == record["sha256"]:
                return record
        bad = target.with_suffix(".bad.jsonl")
        columns = self.space.dimension(self.target) if self.target else None
        rows = 0
        with _files.replacing(bad) as bad_rows, _files.replacing(target) as temporary:
            with open(temporary, "wb") as raw:
                stream = HashingStream(raw)
                for vectors, ids in self._batches(bad_rows if self.quarantine else None):
                    y = self._mapped(vectors)
                    if not rows:
                        columns = y.shape[1]
                        writer = arrow_writer(stream, columns)  # type: ignore[arg-type]
                        write = writer.__enter__()
                    write(y, ids)
                    rows += len(y)
                if not rows:
                    raise _checks.InvalidInput(
                        f"no row of {self.shard.file} can be converted; all were left out."
                    )
                writer.__exit__(None, None, None)
            size = bad_rows.stat().st_size
        if not size:
            bad.unlink()
        record = {**asdict(self.shard), "rows": rows, "dimension": columns, "sha256": stream.hexdigest()}
        _files.write_json(record_path, record)  # last: a shard without its record is written again
        return record

    def _batches(self, bad: Path | None) -> Iterator[tuple[Any, Any]]:
        file = open_vectors(self.shard.file, vector_column=self.vector_column, id_column=self.id_column)
        for batch in file.batches(
            batch_rows=self.batch_rows, start=self.shard.start, stop=self.shard.stop, quarantine=bad
        ):
            if len(batch.vectors):
                numbers = batch.rows + (self.shard.number - self.shard.start)
                yield batch.vectors, batch.ids if file.has_ids else numbers

    def _mapped(self, x: Any) -> Any:
        if self.target is None:
            return self.space.encode(x, source=self.source)
        return self.space.translate(x, source=self.source, target=self.target)


@dataclass(frozen=True)
class Conversion:
    """A finished conversion.

    Attributes
    ----------
    folder : Path
    shards : tuple of dict
        Name, file, start, stop, number, rows, dimension and sha256 of each, in order.
    """

    folder: Path
    shards: tuple[dict[str, Any], ...]

    @property
    def paths(self) -> list[Path]:
        """The shards' files, in order."""
        return [self.folder / shard["name"] for shard in self.shards]

    @property
    def rows(self) -> int:
        """Vectors written."""
        return sum(shard["rows"] for shard in self.shards)


def convert(
    files: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    space: Space,
    source: str,
    target: str | None = None,
    shard_rows: int = SHARD_ROWS,
    batch_rows: int = BATCH_ROWS,
    vector_column: str | None = None,
    id_column: str | None = None,
    quarantine: bool = False,
    run: Runner = run_here,
) -> Conversion:
    """Convert files of vectors, shard by shard; run it again after any interruption.

    Parameters
    ----------
    files : sequence of paths
        See `latentlink.io.open_vectors`. They are only read. Without ids, rows are numbered through all files.
    folder : path
        Receives ``part-00000.arrow`` (ids and vectors, float32), its record ``part-00000.json``, and at the
        end ``manifest.json``.
    space : RelativeSpace
    source : str
        Whose vectors the files hold.
    target : str, optional
        Translate into this encoder's own space; into the shared space when left out.
    shard_rows, batch_rows : int
        Both are counted from the start of each file, so a rerun writes the same bytes.
    vector_column, id_column : str, optional
    quarantine : bool
        Leave out rows that are not finite and list them in ``part-00000.bad.jsonl``; otherwise an error.
    run : callable
        Runs the tasks, one a shard: here, one after the other, unless `latentlink.scale.engine` says on processes
        or on Ray. The shards are the same, byte for byte. On a cluster every node must see files and folder alike.

    Returns
    -------
    Conversion

    Raises
    ------
    InvalidInput
        `folder` holds another conversion, another process is converting into it, a row is not finite, or some
        files have ids and others none.
    """
    folder = _checks.path("folder", folder)
    out = folder.resolve()
    shared(space)
    _checks.one_of("source", source, space.names)
    if target is not None:
        _checks.one_of("target", target, space.names)
    _checks.integer("batch_rows", batch_rows, low=1)
    _checks.integer("shard_rows", shard_rows, low=batch_rows)
    shards, inputs = _cut(
        files, space, source, shard_rows, {"vector_column": vector_column, "id_column": id_column}
    )
    tasks = [
        Task(shard, str(out), space, source, target, batch_rows, vector_column, id_column, quarantine)
        for shard in shards
    ]
    plan = {
        "format": FORMAT,
        "source": source,
        "target": target,
        "fingerprints": {name: space.fingerprint(name) for name in [source, *([target] if target else [])]},
        "shard_rows": shard_rows,
        "batch_rows": batch_rows,
        "quarantine": quarantine,
        "files": inputs,
    }
    with _prepared(folder, plan):
        records = [json.loads(record) for record in run(tasks)]
        _files.write_json(out / "manifest.json", {**plan, "shards": records})
    return Conversion(folder, tuple(records))


def _cut(
    files: Sequence[str | os.PathLike[str]],
    space: Space,
    source: str,
    shard_rows: int,
    columns: dict[str, str | None],
) -> tuple[list[Shard], list[dict[str, Any]]]:
    """Return the shards of the files, in order, and what identifies each file."""
    shards: list[Shard] = []
    inputs: list[dict[str, Any]] = []
    with_ids: dict[bool, Path] = {}
    number = 0
    for path in _checks.paths("files", files):
        file = open_vectors(path, **columns)
        if file.dimension != space.dimension(source):
            raise _checks.InvalidInput(
                f"{path} has {file.dimension} columns but {source!r} in this space has {space.dimension(source)}; "
                "is it of another encoder?"
            )
        with_ids[file.has_ids] = path
        if len(with_ids) == 2:
            raise _checks.InvalidInput(
                f"{with_ids[True]} has ids and {with_ids[False]} has none; give all files ids, or none of them."
            )
        inputs.append({"name": path.name, "rows": file.rows, "digest": _ends(path)})
        for start in range(0, file.rows, shard_rows):
            stop = min(start + shard_rows, file.rows)
            name = f"part-{len(shards):05d}.arrow"
            shards.append(Shard(name, str(path.resolve()), start, stop, number + start))
        number += file.rows
    if not shards:
        raise _checks.InvalidInput("files hold no rows; needs at least one.")
    return shards, inputs


@contextmanager
def _prepared(folder: Path, plan: dict[str, Any]) -> Iterator[None]:
    """Hold the folder of a conversion: its lock, its plan, and no remains of a killed run."""
    folder.mkdir(parents=True, exist_ok=True)
    with _files.locked(folder / "conversion"):
        for remains in folder.glob(".*.tmp"):
            remains.unlink()
        path = folder / "plan.json"
        if path.exists():
            found = _files.read_json(path)
            wrong = [key for key in plan if found.get(key) != plan[key]]
            if wrong:
                raise _checks.InvalidInput(
                    f"{folder} holds another conversion ({', '.join(wrong)} differ); give the same "
                    "files and settings, or another folder."
                )
        else:
            _files.write_json(path, plan)
        yield


def read_conversion(folder: str | os.PathLike[str], *, verify: bool = True) -> Conversion:
    """Open a finished conversion, checking the SHA-256 of every shard unless told not to."""
    folder = _checks.path("folder", folder)
    path = folder / "manifest.json"
    if not path.exists():
        raise _checks.InvalidInput(f"{folder} holds no finished conversion; run convert again to finish it.")
    shards = _files.read_json(path)["shards"]
    for shard in shards:
        if verify and _files.sha256(folder / shard["name"]) != shard["sha256"]:
            raise _checks.InvalidInput(f"{folder / shard['name']} differs from its checksum; convert again.")
    return Conversion(folder, tuple(shards))


def _ends(path: Path) -> str:
    """Digest a file's size, first and last MiB: what tells two inputs apart without reading them whole."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        head = stream.read(1 << 20)
        stream.seek(max(0, size - (1 << 20)))
        return hashlib.sha256(str(size).encode() + head + stream.read()).hexdigest()
