"""Which side is served: on record, and in a database, where a view or an alias says it to every reader."""

from __future__ import annotations

import re
from typing import Any

from latentlink import _checks, _files
from latentlink._progress import track
from latentlink.search.conversion import read_conversion
from latentlink.search.migrate.folder import Migration, known_migration, load, record
from latentlink.search.stores import Store, StoredIndex


def fill_store(
    migration: Migration, store: Store, *, field: str | None = None, progress: bool = True
) -> tuple[Migration, StoredIndex]:
    """Write the converted corpus into a new field of a store; run it again after any interruption.

    The fields that stand there are not touched, and the store serves what it served before.

    Parameters
    ----------
    migration : Migration
        With a finished conversion.
    store : Store
    field : str, optional
        Its name; after the new encoder when left out, or "shared" for the shared space.
    progress : bool
        Draw a bar on stderr, if that is a terminal.

    Raises
    ------
    InvalidInput
        The field stands there already and is of another migration, or holds other vectors at the end.
    """
    _refuse_query_side(migration)
    done = read_conversion(migration.folder / "converted")
    shared = migration.direction == "shared"
    name = field or ("shared" if shared else _named_after(migration.new))
    space, source = _space(migration), None if shared else migration.new
    marks = migration.folder / f"stored-{name}.json"
    stands = store.record(name) is not None
    if stands and marks.exists():
        index = StoredIndex.open(store, name, space=space)
    else:
        if not stands:
            _files.write_json(marks, [])  # first: a field without it is somebody else's
        columns = done.shards[0]["dimension"]
        index = StoredIndex.create(store, name, space=space, source=source, dimension=columns)
    shards = track(done.paths, total=len(done.paths), what="shards into the store", show=progress)
    held = index.load(shards, source=source, encoded=shared, progress=marks)
    if held != done.rows:
        raise _checks.InvalidInput(
            f"field {name!r} holds {held} vectors but {done.rows} were converted; ids repeat, or somebody else "
            "writes there. Fill another field."
        )
    before = store.current()
    if before == name:  # served already: what was before that is on record
        last = migration.last("cutover") or migration.last("fill")
        before = last["before"] if last else None
    return record(migration, "fill", store=type(store).__name__, field=name, rows=held, before=before), index


def cut_over(migration: Migration, *, force: bool = False, store: Store | None = None) -> Migration:
    """Serve the new side; in a store, by making the filled field the current one.

    Parameters
    ----------
    migration : Migration
    force : bool
        Though no gate has passed since the last fit, conversion or shadow evaluation.
    store : Store, optional
        Needed when one was filled. Its view or alias changes in one transaction; no vector does.

    Raises
    ------
    InvalidInput
        The gate has not passed, or the new side is not there yet.
    """
    known_migration(migration)
    if migration.serving == "new" and (store is None or serves(migration, store)[1]):
        raise _checks.InvalidInput("the new side is served already; there is nothing to cut over.")
    if not force and not migration.gate_passed:
        raise _checks.InvalidInput(
            "the gate has not passed since the last change; run `migrate gate`, or cut over with force."
        )
    if migration.direction != "query" and not (migration.folder / "converted" / "manifest.json").exists():
        raise _checks.InvalidInput("the corpus is not converted; run `migrate convert` to its end first.")
    filled = migration.last("fill")
    if store is None:
        if filled is None:
            return record(migration, "cutover", serving="new", forced=force)
        raise _checks.InvalidInput(
            f"field {filled['field']!r} of a store was filled; pass the store, so that it is the one it serves."
        )
    _refuse_query_side(migration)
    if filled is None:
        raise _checks.InvalidInput("the store is not filled; run `migrate convert` with the store first.")
    field = filled["field"]

    def point() -> dict[str, Any]:
        before = store.current()
        StoredIndex.open(store, field, space=_space(migration)).cut_over()
        # A cut-over that was killed before it was recorded has moved the name already.
        return {"before": filled["before"] if before == field else before}

    return record(migration, "cutover", act=point, serving="new", forced=force, field=field)


def roll_back(migration: Migration, *, store: Store | None = None) -> Migration:
    """Serve the old side again, which nothing has touched; in a store, the field that was current before.

    Raises
    ------
    InvalidInput
        The cut-over moved a store's name and the store is not passed, or it serves a third field by now.
    """
    known_migration(migration)
    last = migration.last("cutover")
    if last is None or migration.serving == "old":
        raise _checks.InvalidInput("the old side is served; there is nothing to roll back.")
    if "field" not in last:
        return record(migration, "rollback", serving="old")
    if store is None:
        raise _checks.InvalidInput(f"the cut-over made a store serve {last['field']!r}; pass the store.")
    before = last["before"]

    def point() -> dict[str, Any]:
        now = store.current()
        if now not in (last["field"], before):
            raise _checks.InvalidInput(
                f"the store serves {now!r} and not {last['field']!r}, which the cut-over set; somebody else has "
                "changed it, and it stays as it is."
            )
        store.point(before)
        return {"field": before}

    return record(migration, "rollback", act=point, serving="old")


def serves(migration: Migration, store: Store) -> tuple[str | None, bool]:
    """Return the field that a store serves, and whether that is what the migration has on record."""
    now = store.current()
    moves = [e for e in migration.events if e["verb"] in ("cutover", "rollback") and "field" in e]
    filled = migration.last("fill")
    if moves:
        return now, now == moves[-1]["field"]
    return now, filled is None or now == filled["before"]


def _space(migration: Migration) -> Any:
    return load(migration) if migration.direction == "shared" else None


def _named_after(encoder: str) -> str:
    """Turn an encoder's name into that of a field.

    >>> _named_after("E5-small/v2")
    'e5_small_v2'
    """
    name = re.sub(r"[^a-z0-9_]", "_", encoder.lower())[:40]
    return name if name[:1].isalpha() else f"_{name}"


def _refuse_query_side(migration: Migration) -> None:
    if migration.direction == "query":
        raise _checks.InvalidInput(
            'direction is "query": the store keeps serving the old vectors, and queries are translated; leave the '
            "store out."
        )
