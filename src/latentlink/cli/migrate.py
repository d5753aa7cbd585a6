"""`latentlink migrate`: plan, fit, convert, shadow, gate, cutover, rollback, status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from latentlink._checks import InvalidInput
from latentlink.cli._frame import CheckFailed, Json, Quiet, Seed, emit
from latentlink.cli._jobs import Address, Engine, Workers

migrate = typer.Typer(help="Move an index to a new encoder without re-embedding it.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of the migration.")]
Store = Annotated[
    str | None,
    typer.Option("--store", help="A database: postgresql://…, http://… of Qdrant, or a folder of its engine."),
]
Table = Annotated[str, typer.Option("--table", help="Table or collection of the store.")]


@migrate.command()
def plan(
    files: Annotated[list[Path], typer.Argument(help="The old encoder's files.")],
    target_dimension: Annotated[int, typer.Option("--target-dimension", help="Columns after the map.")],
    out_folder: Annotated[Path, typer.Option("--folder", help="Where the result would go.")] = Path("."),
    rate: Annotated[float, typer.Option("--documents-per-second", help="Speed of re-embedding.")] = 100.0,
    json: Json = False,
) -> None:
    """Estimate time and disk without writing anything."""
    from latentlink.search import migrate as jobs

    found = jobs.plan(files, target_dimension=target_dimension, out=out_folder, documents_per_second=rate)
    emit(str(found), vars(found) | {"fits": found.fits}, as_json=json)


@migrate.command()
def fit(
    folder: Folder,
    pairs_old: Annotated[Path, typer.Argument(help="A sample of items by the old encoder.")],
    pairs_new: Annotated[Path, typer.Argument(help="The same items by the new encoder, in the same order.")],
    old: Annotated[str, typer.Option("--old", help="Name of the old encoder.")],
    new: Annotated[str, typer.Option("--new", help="Name of the new encoder.")],
    direction: Annotated[str, typer.Option("--direction", help="corpus, query or shared.")] = "corpus",
    n_anchors: Annotated[int, typer.Option("--anchors", help="Dimension of the shared space.")] = 256,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Begin a migration from pairs, a fifth of them held out."""
    from latentlink.io import read_vectors
    from latentlink.search import migrate as jobs

    (x, x_ids), (y, y_ids) = read_vectors(pairs_old), read_vectors(pairs_new)
    _same_items("pairs_old and pairs_new", x_ids, y_ids)
    state = jobs.fit(folder, x, y, old=old, new=new, direction=direction, n_anchors=n_anchors, seed=seed)
    _say(state, json)


@migrate.command()
def convert(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="The old encoder's files; they are only read.")],
    engine: Engine = "local",
    workers: Workers = 1,
    address: Address = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="List rows that are not finite and leave them out.")
    ] = False,
    store: Store = None,
    table: Table = "items",
    field: Annotated[
        str | None,
        typer.Option("--field", help="New field of the store; named after the new encoder if left out."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert the corpus, shard by shard, and with --store write it into a new field; resumable."""
    from latentlink import scale
    from latentlink.search import migrate as jobs

    progress = not (quiet or json)
    state, _ = jobs.convert_corpus(
        jobs.open_migration(folder),
        files,
        run=scale.engine(engine, workers=workers, address=address, progress=progress),
        quarantine=quarantine,
    )
    with _opened(store, table) as place:
        if place is not None:
            state, _ = jobs.fill_store(state, place, field=field, progress=progress)
    _say(state, json)


@migrate.command()
def shadow(
    folder: Folder,
    queries: Annotated[Path | None, typer.Option("--queries", help="Real queries by the new encoder.")] = None,
    relevant: Annotated[
        Path | None, typer.Option("--relevant", help="npy file: the corpus row that each query should find.")
    ] = None,
    corpus_old: Annotated[
        Path | None, typer.Option("--corpus-old", help="A corpus sample, old encoder.")
    ] = None,
    corpus_new: Annotated[
        Path | None, typer.Option("--corpus-new", help="The same sample re-embedded.")
    ] = None,
    queries_old: Annotated[Path | None, typer.Option("--queries-old", help="The queries, old encoder.")] = None,
    tenants: Annotated[Path | None, typer.Option("--tenants", help="Text file, a name for each query.")] = None,
    crowd: Annotated[
        Path | None,
        typer.Option("--crowd", help="Vectors by the new encoder, such as the pairs': rank less by hubs."),
    ] = None,
    k: Annotated[int, typer.Option("--k", help="Neighbours.")] = 10,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search a sample both ways: what the migrated search keeps of the new encoder's own."""
    from latentlink.io import read_vectors
    from latentlink.search import migrate as jobs

    def load(path: Path | None) -> Any:
        return None if path is None else read_vectors(path)[0]

    _, found = jobs.run_shadow(
        jobs.open_migration(folder),
        queries_new=load(queries),
        queries_old=load(queries_old),
        relevant=None if relevant is None else _rows(relevant),
        corpus_old=load(corpus_old),
        corpus_new=load(corpus_new),
        crowd=load(crowd),
        tenants=None if tenants is None else tenants.read_text(encoding="utf-8").splitlines(),
        k=k,
        progress=not (quiet or json),
    )
    emit(str(found), vars(found), as_json=json)


@migrate.command()
def gate(
    folder: Folder,
    retention: Annotated[float, typer.Option("--retention", help="Share of recall to keep.")] = 0.95,
    certain: Annotated[bool, typer.Option("--certain", help="Ask it of the interval's lower end.")] = False,
    certified: Annotated[
        float | None,
        typer.Option(
            "--certified", help='Ask for verdict "trust" too, and a cross-entropy certainly below this (nats).'
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Exit with 1 when the last shadow evaluation keeps less than the asked retention, or is not certified."""
    from latentlink.search import migrate as jobs

    state, passed = jobs.gate(
        jobs.open_migration(folder), retention=retention, certain=certain, certified=certified
    )
    event = dict(state.events[-1])
    if event["retention"] is None or event["retention"] < retention:
        raise CheckFailed(f"retention {event['retention']} is below {retention}; the gate stays shut.")
    seen = f"retention {event['retention']} is at least {retention}"
    if certified is not None:
        seen += f"; verdict {event['verdict']}, cross-entropy at most {event['cross_entropy_high']}"
    if not passed:
        raise CheckFailed(f"{seen}: needs trust and less than {certified}; the gate stays shut.")
    emit(f"{seen}: passed", event, as_json=json)


@migrate.command()
def cutover(
    folder: Folder,
    force: Annotated[bool, typer.Option("--force", help="Even though the gate did not pass.")] = False,
    store: Store = None,
    table: Table = "items",
    json: Json = False,
) -> None:
    """Serve the new side; with --store by its view or alias."""
    from latentlink.search import migrate as jobs

    with _opened(store, table) as place:
        _say(jobs.cut_over(jobs.open_migration(folder), force=force, store=place), json)


@migrate.command()
def rollback(folder: Folder, store: Store = None, table: Table = "items", json: Json = False) -> None:
    """Serve the old side again; nothing has touched it."""
    from latentlink.search import migrate as jobs

    with _opened(store, table) as place:
        _say(jobs.roll_back(jobs.open_migration(folder), store=place), json)


@migrate.command()
def status(folder: Folder, store: Store = None, table: Table = "items", json: Json = False) -> None:
    """Say what was done and which side is served; exit with 1 when the store serves another field."""
    from latentlink.search import migrate as jobs

    state = jobs.open_migration(folder)
    if store is None:
        _say(state, json)
        return
    with _opened(store, table) as place:
        field, agrees = jobs.serves(state, place)
    served = "no field" if field is None else f"field {field}"
    record = vars(state) | {"store": {"field": field, "agrees": agrees}}
    emit(f"{state}\nthe store serves {served}", record, as_json=json)
    if not agrees:
        raise CheckFailed(f"the store serves {served}, which is not what this migration has on record")


def _say(state: Any, json: bool) -> None:
    emit(str(state), vars(state) | {"next": state.advice}, as_json=json)


def _opened(address: str | None, table: str) -> Any:
    from contextlib import nullcontext

    from latentlink.search.stores import open_store

    return nullcontext() if address is None else open_store(address, table)


def _rows(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{path} is not a npy file of row numbers; write it with numpy.save.") from error


def _same_items(what: str, a: Any, b: Any) -> None:
    if a is not None and b is not None and a.tolist() != b.tolist():
        raise InvalidInput(
            f"{what} hold different ids, or another order; write the same items in the same order."
        )
