"""Gather moments and convert vectors: a task for each span of each file."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.io import open_vectors
from latentlink.moments import Moments, collect, merge
from latentlink.scale.engines import run_tasks
from latentlink.search.conversion import (
    BATCH_ROWS,
    SHARD_ROWS,
    Conversion,
    Task,
    finished,
    plan_tasks,
    prepared,
)

PathLike = str | os.PathLike[str]


def gather_moments(
    space: str,
    files: Sequence[PathLike],
    *,
    engine: str = "local",
    workers: int = 1,
    address: str | None = None,
    policy: str = "none",
    support_size: int = 10_000,
    n_folds: int = 1,
    shard_rows: int = SHARD_ROWS,
    batch_rows: int = BATCH_ROWS,
) -> Moments:
    """Gather the moments and the support sample of one encoder's files, in parallel.

    Parameters
    ----------
    space : str
        The encoder's name.
    files : sequence of paths
        Read in the order given. Without ids, rows are numbered through all files.
    engine, workers, address
        See `run_tasks`.
    policy, support_size, n_folds
        See `latentlink.moments.Moments`.
    shard_rows, batch_rows : int
        Rows of a task and of a batch in it. They, and nothing else, settle the borders of all sums.

    Returns
    -------
    Moments
        The same bits whatever the engine and the workers; to 1e-10 what one pass in one piece gives.
    """
    _checks.integer("batch_rows", batch_rows, low=1)
    _checks.integer("shard_rows", shard_rows, low=batch_rows)
    tasks, shift, first_row = [], None, 0
    for name in map(str, files):
        file = open_vectors(name)
        if shift is None and file.rows:
            first = next(file.batches(batch_rows=batch_rows)).vectors
            shift = collect(space, [first], policy=policy).shift  # the mean of the first batch, for all tasks
        for start in range(0, file.rows, shard_rows):
            stop = min(start + shard_rows, file.rows)
            tasks.append(
                _Gather(space, name, start, stop, first_row, shift, batch_rows, policy, support_size, n_folds)
            )
        first_row += file.rows
    if not tasks:
        raise _checks.InvalidInput("files hold no rows; needs at least one.")
    return merge([_unpacked(raw) for raw in run_tasks(tasks, engine=engine, workers=workers, address=address)])


def convert(
    files: Sequence[PathLike],
    folder: PathLike,
    *,
    space: Any,
    source: str,
    target: str | None = None,
    engine: str = "local",
    workers: int = 1,
    address: str | None = None,
    shard_rows: int = SHARD_ROWS,
    batch_rows: int = BATCH_ROWS,
    vector_column: str | None = None,
    id_column: str | None = None,
    quarantine: bool = False,
) -> Conversion:
    """Do `latentlink.search.convert` on an engine: the same shards, byte for byte.

    On a cluster, `files` and `folder` must be paths that every node sees alike.
    """
    out = Path(folder).resolve()
    tasks, plan = plan_tasks(
        [Path(file).resolve() for file in files],
        out,
        space=space,
        source=source,
        target=target,
        shard_rows=shard_rows,
        batch_rows=batch_rows,
        vector_column=vector_column,
        id_column=id_column,
        quarantine=quarantine,
    )
    with prepared(out, plan):
        jobs = [_Convert(task) for task in tasks]
        results = run_tasks(jobs, engine=engine, workers=workers, address=address)
        return finished(out, plan, [json.loads(record) for record in results])


@dataclass(frozen=True)
class _Convert:
    task: Task

    def __call__(self) -> bytes:
        return json.dumps(self.task.run()).encode()


@dataclass(frozen=True)
class _Gather:
    space: str
    file: str
    start: int
    stop: int
    first_row: int
    shift: Any
    batch_rows: int
    policy: str
    support_size: int
    n_folds: int

    def __call__(self) -> bytes:
        file = open_vectors(self.file)
        batches = file.batches(batch_rows=self.batch_rows, start=self.start, stop=self.stop)
        pairs = (
            (batch.vectors, batch.ids if file.has_ids else batch.rows + self.first_row) for batch in batches
        )
        state = collect(
            self.space,
            pairs,
            shift=self.shift,
            policy=self.policy,
            support_size=self.support_size,
            n_folds=self.n_folds,
        )
        return _packed(state)


def _packed(state: Moments) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **{name: np.asarray(value) for name, value in vars(state).items()})
    return stream.getvalue()


def _unpacked(raw: bytes) -> Moments:
    with np.load(io.BytesIO(raw), allow_pickle=False) as kept:
        values: dict[str, Any] = {name: kept[name] for name in kept}
    plain = {name: values[name].item() for name in ("space", "policy", "support_size")}
    return Moments(**{**values, **plain})
