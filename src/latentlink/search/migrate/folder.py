"""A migration on disk: its space, its evidence, what it decided, and which side is served."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks, _files
from latentlink.search.conversion import Conversion, convert
from latentlink.search.migrate.shadow import DIRECTIONS, Shadow, shadow

FORMAT = 1


@dataclass(frozen=True)
class Migration:
    """The state of a migration.

    Attributes
    ----------
    folder : Path
        Holds ``migration.json``, ``space/``, ``heldout.npz``, and later ``converted/`` and ``shadow.json``.
    old, new : str
    direction : {"corpus", "query", "shared"}
    serving : {"old", "new"}
    events : tuple of dict
        What was done, with its time in UTC and its result.
    """

    folder: Path
    old: str
    new: str
    direction: str
    serving: str
    events: tuple[dict[str, Any], ...]

    def last(self, verb: str) -> dict[str, Any] | None:
        """Return the last event of a verb, or None."""
        return next((event for event in reversed(self.events) if event["verb"] == verb), None)

    @property
    def gate_passed(self) -> bool:
        """Whether the last gate passed, and nothing was fitted, converted or evaluated since."""
        relevant = [event for event in self.events if event["verb"] in ("fit", "convert", "shadow", "gate")]
        return bool(relevant) and bool(relevant[-1].get("passed"))

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.serving == "new":
            place = self.folder / "space"
            use = {
                "corpus": f"search the converted vectors with queries of {self.new!r} as they are",
                "shared": f"encode queries of {self.new!r} by the space in {place}",
                "query": f"translate queries of {self.new!r} to {self.old!r} by the space in {place}",
            }
            return f"{use[self.direction]}; `migrate rollback` goes back"
        gate = self.last("gate")
        if self.last("shadow") is None:
            return "`migrate shadow` with real queries"
        if self.direction != "query" and self.last("convert") is None:
            return "`migrate convert` the corpus"
        if self.gate_passed:
            return "`migrate cutover`"
        if gate is not None and gate is self.events[-1]:
            return "the gate is shut: fit on more pairs, try another direction, or keep the old side"
        return "`migrate gate`"

    def __str__(self) -> str:
        lines = [f"{self.old} -> {self.new}, {self.direction} side; serving {self.serving}"]
        for event in self.events:
            detail = ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("verb", "time"))
            lines.append(f"{event['time']}  {event['verb']:9} {detail}")
        lines.append(f"next: {self.advice}")
        return "\n".join(lines)


def fit(
    folder: str | os.PathLike[str],
    pairs_old: Any,
    pairs_new: Any,
    *,
    old: str,
    new: str,
    direction: str = "corpus",
    holdout: float = 0.2,
    n_anchors: int = 256,
    seed: int = 0,
) -> Migration:
    """Begin a migration: fit the space on pairs, holding some out for the shadow evaluation.

    Parameters
    ----------
    folder : path
        New.
    pairs_old, pairs_new : array (n, d_old), (n, d_new)
        Row j is the same item by both encoders. Embed a random sample of the corpus; 2,000 items are a start.
    old, new : str
    direction : {"corpus", "query", "shared"}
        See `shadow`.
    holdout : float
        In (0, 1).
    n_anchors : int
    seed : int

    Raises
    ------
    InvalidInput
        The folder holds a migration already.
    """
    from latentlink.spaces import RelativeSpace

    place = _checks.path("folder", folder)
    for what, name in (("old", old), ("new", new)):
        _checks.instance(what, name, str, "the name of an encoder")
    _checks.one_of("direction", direction, DIRECTIONS)
    share = _checks.number("holdout", holdout, low=0, high=1, open_low=True)
    if old == new:
        raise _checks.InvalidInput(f"old and new are both {old!r}; needs two names.")
    if (place / "migration.json").exists():
        raise _checks.InvalidInput(f"{folder} holds a migration already; pick another folder.")
    x = _checks.numpy_matrix("pairs_old", pairs_old, min_rows=20)
    y = _checks.numpy_matrix("pairs_new", pairs_new)
    _checks.same_rows(pairs_old=x, pairs_new=y)
    order = _checks.generator(seed).permutation(len(x))
    held, kept = order[: max(2, round(share * len(x)))], order[max(2, round(share * len(x))) :]
    space = RelativeSpace(n_anchors=n_anchors, seed=seed).fit({old: x[kept], new: y[kept]})
    place.mkdir(parents=True, exist_ok=True)
    space.save(place / "space")
    with _files.replacing(place / "heldout.npz") as temporary, open(temporary, "wb") as stream:
        np.savez(stream, allow_pickle=False, rows=held, old=x[held], new=y[held])
    state = Migration(place, old, new, direction, "old", ())
    return record(state, "fit", pairs=len(kept), held_out=len(held), fingerprint=space.fingerprint())


def known_migration(migration: Any) -> None:
    """Raise when `migration` is none."""
    _checks.instance("migration", migration, Migration, "a Migration, as fit or open_migration gives it")


def open_migration(folder: str | os.PathLike[str]) -> Migration:
    """Read the state of a migration."""
    folder = _checks.path("folder", folder)
    path = folder / "migration.json"
    if not path.exists():
        raise _checks.InvalidInput(f"{folder} holds no migration; begin one with `migrate fit`.")
    kept = _files.read_json(path)
    if kept.pop("format") != FORMAT:
        raise _checks.InvalidInput(f"{path} is of another version; begin the migration again.")
    return Migration(folder=folder, **{**kept, "events": tuple(kept["events"])})


def convert_corpus(
    migration: Migration,
    files: Sequence[str | os.PathLike[str]],
    **options: Any,
) -> tuple[Migration, Conversion]:
    """Convert the old encoder's files into ``converted/``; run it again after any interruption.

    `options` are those of `latentlink.search.convert`. A query-side migration has nothing to convert.
    """
    known_migration(migration)
    if migration.direction == "query":
        raise _checks.InvalidInput(
            'direction is "query": the corpus stays as it is; translate the queries instead.'
        )
    target = migration.new if migration.direction == "corpus" else None
    done = convert(
        files,
        migration.folder / "converted",
        space=load(migration),
        source=migration.old,
        target=target,
        **options,
    )
    return record(migration, "convert", rows=done.rows, shards=len(done.shards)), done


def run_shadow(
    migration: Migration,
    *,
    queries_new: Any = None,
    queries_old: Any = None,
    relevant: Any = None,
    corpus_old: Any = None,
    corpus_new: Any = None,
    tenants: Any = None,
    crowd: Any = None,
    k: int = 10,
    progress: bool = True,
) -> tuple[Migration, Shadow]:
    """Evaluate on real queries, or, without any, on the held-out items searching for themselves.

    See `shadow` for the arguments. Without queries the held-out items search for themselves; they are easy, so a
    gate should rest on real ones.
    """
    known_migration(migration)
    if (corpus_old is None) != (corpus_new is None) or (queries_new is None) != (relevant is None):
        raise _checks.InvalidInput(
            "corpus_old and corpus_new go together, and queries_new and relevant go together; pass both."
        )
    if queries_new is not None and corpus_old is None:
        raise _checks.InvalidInput(
            "queries_new need a corpus sample, whose rows relevant counts; pass corpus_old and corpus_new."
        )
    if corpus_old is None:
        with np.load(migration.folder / "heldout.npz", allow_pickle=False) as held:
            corpus_old, corpus_new = held["old"], held["new"]
    real = queries_new is not None
    if not real:
        queries_new, queries_old, relevant = corpus_new, corpus_old, np.arange(len(corpus_new))
    found = shadow(
        load(migration),
        old=migration.old,
        new=migration.new,
        direction=migration.direction,
        corpus_old=corpus_old,
        corpus_new=corpus_new,
        queries_new=queries_new,
        queries_old=queries_old,
        relevant=relevant,
        tenants=tenants,
        crowd=crowd,
        k=k,
        progress=progress,
    )
    _files.write_json(migration.folder / "shadow.json", _files.plain(asdict(found)))
    low = found.retention_interval.low
    state = record(
        migration,
        "shadow",
        retention=round(found.retention, 4),
        low=round(low, 4),
        real_queries=real,
        queries=found.n_queries,
        verdict=found.verdict,
        cross_entropy_high=round(found.cross_entropy_high, 4),
    )
    return state, found


def gate(
    migration: Migration, *, retention: float = 0.95, certain: bool = False, certified: float | None = None
) -> tuple[Migration, bool]:
    """Decide whether the last shadow evaluation keeps the asked retention of recall.

    Parameters
    ----------
    migration : Migration
    retention : float
        In (0, 1].
    certain : bool
        Ask it of the lower end of the 95 % interval, not of the estimate.
    certified : float, optional
        Ask as well that the certificate of the migrated space has verdict "trust" and the upper end of its
        cross-entropy's interval is below this many nats. Chance is about 0.
    """
    known_migration(migration)
    asked = _checks.number("retention", retention, low=0, high=1, open_low=True)
    event = migration.last("shadow")
    if event is None:
        raise _checks.InvalidInput("there is no shadow evaluation yet; run `migrate shadow` first.")
    value = event["low"] if certain else event["retention"]
    passed = bool(value is not None and value >= asked)
    detail: dict[str, Any] = {"retention": value, "asked": asked}
    if certified is not None:
        bound, high = _checks.number("certified", certified), event.get("cross_entropy_high")
        passed = passed and event.get("verdict") == "trust" and high is not None and high < bound
        detail |= {"verdict": event.get("verdict"), "cross_entropy_high": high, "asked_below": bound}
    return record(migration, "gate", passed=passed, **detail), passed


def load(migration: Migration) -> Any:
    """Return the space of a migration."""
    from latentlink.spaces import load_space

    return load_space(migration.folder / "space")


def record(
    state: Migration, verb: str, *, act: Callable[[], dict[str, Any]] = dict, **detail: Any
) -> Migration:
    """Append an event under the lock, refusing when another process has appended since the state was read.

    `act` is done under the same lock, before the event is written, and adds its details to it.
    """
    path = state.folder / "migration.json"
    with _files.locked(path):
        there = len(open_migration(state.folder).events) if path.exists() else 0
        if there != len(state.events):
            raise _checks.InvalidInput(f"{state.folder} was changed by another process; open it and try again.")
        done = act()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        event = {"verb": verb, "time": now, **_files.plain(detail | done)}
        new = Migration(
            folder=state.folder,
            old=state.old,
            new=state.new,
            direction=state.direction,
            serving=detail.get("serving", state.serving),
            events=(*state.events, event),
        )
        kept = {key: value for key, value in vars(new).items() if key != "folder"}
        _files.write_json(path, {"format": FORMAT, **kept, "events": list(new.events)})
    return new
