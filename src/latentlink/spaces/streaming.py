"""Spaces of files: moments in one pass, and encoding batch by batch, in bounded memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._files import replacing
from latentlink._processes import Runner, run_here
from latentlink._progress import track
from latentlink.io import BATCH_ROWS, SHARD_ROWS, arrow_writer, open_vectors, read_vectors, write_vectors
from latentlink.moments import Moments, collect, merge
from latentlink.spaces.relative import RelativeSpace, known_space

PathLike = str | os.PathLike[str]


def file_moments(
    space: str,
    files: Sequence[PathLike],
    *,
    policy: str = "none",
    support_size: int = 10_000,
    n_folds: int = 1,
    shard_rows: int = SHARD_ROWS,
    batch_rows: int = BATCH_ROWS,
    run: Runner = run_here,
) -> Moments:
    """Gather moments and a support sample from files of vectors, read once in order.

    Parameters
    ----------
    space : str
        The encoder's name.
    files : sequence of paths
        See `latentlink.io.open_vectors`. Without ids, rows are numbered through all files.
    policy, support_size, n_folds
        See `latentlink.moments.Moments`.
    shard_rows, batch_rows : int
        Rows of a task and of a batch in it, counted from the start of each file. They, and nothing else, settle
        the borders of all sums.
    run : callable
        Runs the tasks: here, one after the other, unless `latentlink.scale.engine` says on processes or on Ray.
        On a cluster every node must see the files alike.

    Returns
    -------
    Moments
        The same bits whatever runs the tasks.
    """
    tasks = _gathering(space, files, policy, support_size, n_folds, shard_rows, batch_rows)
    return _merged(run(tasks))


def fit_files(
    space: RelativeSpace,
    files: Mapping[str, Sequence[PathLike]],
    *,
    support_size: int = 10_000,
    shard_rows: int = SHARD_ROWS,
    batch_rows: int = BATCH_ROWS,
    run: Runner = run_here,
) -> RelativeSpace:
    """Fit a space on files: mean and covariance of every row, anchors from a sample of shared items.

    Parameters
    ----------
    space : RelativeSpace
    files : mapping of name to sequence of paths
    support_size : int
        Items sampled by the hash of their id, the same for every encoder.
    shard_rows, batch_rows, run
        See `file_moments`.
    """
    known_space(space)
    _checks.instance("files", files, Mapping, "a mapping of encoder name to paths")
    tasks = {
        str(name): _gathering(str(name), some, "none", support_size, 1, shard_rows, batch_rows)
        for name, some in files.items()
    }
    # All encoders' tasks at once, so that workers are not idle at the end of each; results come in order.
    results = iter(run([task for some in tasks.values() for task in some]))
    return space.fit({name: _merged(islice(results, len(some))) for name, some in tasks.items()})


def encode_file(
    space: RelativeSpace,
    path: PathLike,
    out: PathLike,
    *,
    source: str,
    target: str | None = None,
    progress: bool = True,
) -> int:
    """Encode (or with `target`, translate) a file of vectors.

    An Arrow IPC file (.arrow) is written batch by batch in bounded memory; any other kind that
    `latentlink.io.write_vectors` knows is held in memory first. For many files, on many processes or a cluster,
    and to go on after an interruption, see `latentlink.search.convert`.

    Parameters
    ----------
    space : RelativeSpace
    path : path
        See `latentlink.io.open_vectors`.
    out : path
    source : str
        Whose vectors the file holds.
    target : str, optional
        Translate into this encoder's own space; into the shared space when left out.
    progress : bool
        Draw a bar on stderr, if that is a terminal.

    Returns
    -------
    int
        Rows written.
    """
    known_space(space)
    target_path = _checks.path("out", out)
    file = open_vectors(path)

    def convert(vectors: Any) -> Any:
        x = vectors.astype(np.float32, copy=False)
        if target is None:
            return space.encode(x, source=source)
        return space.translate(x, source=source, target=target)

    if target_path.suffix.lower() != ".arrow":
        vectors, ids = read_vectors(path)
        write_vectors(out, convert(vectors), ids=ids)
        return len(vectors)
    dimension = int(space.consensus_.shape[1]) if target is None else space.dimension(target)
    rows = 0
    with replacing(out) as temporary, open(temporary, "wb") as stream, arrow_writer(stream, dimension) as write:
        total = -(-file.rows // BATCH_ROWS)
        for batch in track(file.batches(), total=total, what="batches", show=progress):
            write(convert(batch.vectors), batch.ids)
            rows += len(batch.rows)
    return rows


@dataclass(frozen=True)
class _Gather:
    """The moments of rows `start` to `stop` of one file; the first of them is row `number` of all files."""

    space: str
    file: str
    start: int
    stop: int
    number: int
    shift: Any
    batch_rows: int
    policy: str
    support_size: int
    n_folds: int

    def __call__(self) -> bytes:
        file = open_vectors(self.file)
        batches = file.batches(batch_rows=self.batch_rows, start=self.start, stop=self.stop)
        pairs = (
            (batch.vectors, batch.ids if file.has_ids else batch.rows + (self.number - self.start))
            for batch in batches
        )
        state = collect(
            self.space,
            pairs,
            shift=self.shift,
            policy=self.policy,
            support_size=self.support_size,
            n_folds=self.n_folds,
        )
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **{name: np.asarray(value) for name, value in vars(state).items()})
        return stream.getvalue()


def _gathering(
    space: str,
    files: Sequence[PathLike],
    policy: str,
    support_size: int,
    n_folds: int,
    shard_rows: int,
    batch_rows: int,
) -> list[_Gather]:
    _checks.instance("space", space, str, "the name of an encoder")
    _checks.integer("batch_rows", batch_rows, low=1)
    _checks.integer("shard_rows", shard_rows, low=batch_rows)
    tasks: list[_Gather] = []
    shift, number = None, 0
    for path in _checks.paths("files", files):
        file = open_vectors(path)
        if shift is None and file.rows:
            first = next(file.batches(batch_rows=batch_rows)).vectors
            shift = collect(space, [first], policy=policy).shift  # the mean of the first batch, for all tasks
        for start in range(0, file.rows, shard_rows):
            stop = min(start + shard_rows, file.rows)
            name = str(path.resolve())
            tasks.append(
                _Gather(
                    space, name, start, stop, number + start, shift, batch_rows, policy, support_size, n_folds
                )
            )
        number += file.rows
    if not tasks:
        raise _checks.InvalidInput(f"the files of {space!r} hold no rows; needs at least one.")
    return tasks


def _merged(results: Iterable[bytes]) -> Moments:
    """Add the states up one by one as they come: the order is that of the tasks, the memory that of two."""
    return reduce(lambda before, state: merge([before, state]), map(_unpacked, results))


def _unpacked(raw: bytes) -> Moments:
    with np.load(io.BytesIO(raw), allow_pickle=False) as kept:
        values: dict[str, Any] = {name: kept[name] for name in kept}
    plain = {name: values[name].item() for name in ("space", "policy", "support_size")}
    return Moments(**{**values, **plain})
