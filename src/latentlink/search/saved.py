"""An index as a folder: written whole or not at all, every file checked when it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks, _files
from latentlink._metrics import Interval
from latentlink.search.engines import Exact, Faiss, Recall
from latentlink.search.gate import Gate, Ids, Space
from latentlink.search.hubs import Hubs

FORMAT = 1


def write(
    target: Path,
    generation: int,
    *,
    engine: Exact | Faiss,
    gate: Gate,
    ids: Ids,
    recall: Recall | None,
    hubs: Hubs | None,
) -> None:
    """Write the parts of an index."""
    with _files.replacing_folder(target) as folder:
        engine.write(folder)
        np.save(folder / "ids.npy", ids, allow_pickle=False)
        if hubs is not None:
            hubs.write(folder)
        space: Any = gate.space
        if hasattr(space, "save"):
            space.save(folder / "space")
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        manifest = {
            "format": FORMAT,
            "generation": generation,
            "kind": engine.kind,
            "rows": len(ids),
            "dimension": engine.dimension,
            "width": getattr(engine, "width", None),
            "recall": None if recall is None else vars(recall),
            "gate": gate.record(),
            "sha256": {str(file.relative_to(folder)): _files.sha256(file) for file in files},
        }
        _files.write_json(folder / "index.json", manifest)


def read(path: str | os.PathLike[str], space: Space | None) -> tuple[dict[str, Any], int]:
    """Return the parts of an index by the names that `write` takes, and its generation."""
    folder = Path(path)
    manifest = _files.read_json(folder / "index.json")
    if manifest.get("format") != FORMAT:
        raise _checks.InvalidInput(
            f"{path} has format {manifest.get('format')}; this version reads {FORMAT}. Build it again."
        )
    for name, digest in manifest["sha256"].items():
        if _files.sha256(folder / name) != digest:
            raise _checks.InvalidInput(f"{folder / name} differs from its checksum; restore or build it again.")
    if space is None and (folder / "space").is_dir():
        from latentlink.spaces import load_space

        space = load_space(folder / "space")
    kept, kind = manifest["recall"], manifest["kind"]
    parts = {
        "engine": Exact.read(folder) if kind == "exact" else Faiss.read(folder, kind, manifest["width"]),
        "gate": Gate.of_record(str(path), manifest["gate"], space),
        "ids": np.load(folder / "ids.npy", allow_pickle=False),
        "recall": None if kept is None else Recall(**{**kept, "interval": Interval(*kept["interval"])}),
        "hubs": Hubs.read(folder),
    }
    return parts, manifest["generation"]


def generation_of(target: Path) -> int:
    """Return the generation of the index at a path, or 0 when nothing is there."""
    if not target.exists():
        return 0
    if not (target / "index.json").is_file():
        raise _checks.InvalidInput(f"{target} exists and is no index; pick another path.")
    return int(_files.read_json(target / "index.json")["generation"])
