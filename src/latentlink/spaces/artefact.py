"""Save and load a space: one folder, two files, nothing pickled, every byte checked."""

from __future__ import annotations

import itertools
import os
from importlib.metadata import version
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._files import read_json, replacing_folder, sha256, write_json
from latentlink.spaces.contrast import left_out, signature
from latentlink.spaces.encoder import Encoder, Profile
from latentlink.spaces.relative import RelativeSpace

_FORMAT = 1
_SETTINGS = ("n_anchors", "anchors", "similarity", "normalisation", "shrinkage", "seed")
_ARRAYS = ("mean", "map", "decode", "frame", "anchor_norms", "offset", "spread")
_PROFILE = ("mean", "whitening", "energies", "norms", "probes", "signature")


def save_space(space: RelativeSpace, folder: str | os.PathLike[str]) -> None:
    """Write `space.json` and `space.safetensors` into a new folder and swap it into place."""
    from safetensors.numpy import save_file

    tensors = {"weights": _dense(space.weights_), "consensus": space.consensus_, **_ids(space.ids_)}
    if space.normalisation == "gram":
        tensors["gram"] = space.gram_
    for place, name in enumerate(space.names):
        encoder = space.encoders_[name]
        for part in _ARRAYS:
            value = getattr(encoder, part)
            if value is not None:
                tensors[f"{place}.{part}"] = value
        for part in _PROFILE:
            tensors[f"{place}.profile.{part}"] = getattr(encoder.profile, part)
    with replacing_folder(folder) as temporary:
        # safetensors writes the memory of an array as it lies: a transposed one would come back scrambled.
        in_order = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        save_file(in_order, temporary / "space.safetensors")
        write_json(
            temporary / "space.json",
            {
                "format": _FORMAT,
                "library": version("latentlink"),
                "kind": space.kind_,
                "reason": space.reason_,
                "settings": {name: getattr(space, name) for name in _SETTINGS}
                | {"anchors": space.anchors if isinstance(space.anchors, str) else "given"},
                "encoders": [
                    {
                        "name": name,
                        "dimension": space.dimension(name),
                        "rows": space.encoders_[name].n_rows,
                        "shrinkage": space.encoders_[name].shrinkage,
                        "matched": list(space.matched_[name]),
                        "fingerprint": space.fingerprint(name),
                    }
                    for name in space.names
                ],
                "fingerprint": space.fingerprint(),
                "files": {"space.safetensors": sha256(temporary / "space.safetensors")},
            },
        )


def load_space(folder: str | os.PathLike[str]) -> RelativeSpace:
    """Read a space that `RelativeSpace.save` wrote, checking the SHA-256 of its arrays.

    Parameters
    ----------
    folder : path

    Returns
    -------
    RelativeSpace

    Raises
    ------
    InvalidInput
        A file was altered or the format is newer than this library.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from latentlink.spaces import RelativeSpace
    >>> x = np.random.default_rng(0).normal(size=(100, 4))
    >>> space = RelativeSpace(n_anchors=3).fit({"old": x, "new": x[:, ::-1]})
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     space.save(f"{parent}/space")
    ...     load_space(f"{parent}/space").names
    ('old', 'new')
    """
    from safetensors.numpy import load_file

    path = _checks.path("folder", folder)
    record = read_json(path / "space.json")
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise _checks.InvalidInput(
            f"{path / 'space.json'} is not a space of format {_FORMAT}; update latentlink or save it again."
        )
    for name, digest in record["files"].items():
        if sha256(path / name) != digest:
            raise _checks.InvalidInput(
                f"{path / name} was altered after it was saved; take it from a good copy."
            )
    tensors = load_file(path / "space.safetensors")
    space = RelativeSpace(**record["settings"])
    space.weights_, space.consensus_, space.ids_ = tensors["weights"], tensors["consensus"], _named(tensors)
    space.reason_ = record["reason"]
    space.kind_ = record.get("kind", record["settings"]["anchors"])  # a space of an older library lacks it
    if "gram" in tensors:
        space.gram_ = tensors["gram"]
    space.matched_ = {entry["name"]: tuple(entry["matched"]) for entry in record["encoders"]}
    space.encoders_ = {
        entry["name"]: Encoder(
            **{part: tensors.get(f"{place}.{part}") for part in _ARRAYS},  # type: ignore[arg-type]
            profile=_profile(tensors, f"{place}.profile.", entry),
            n_rows=entry["rows"],
            shrinkage=entry["shrinkage"],
        )
        for place, entry in enumerate(record["encoders"])
    }
    return space


def _profile(tensors: dict[str, np.ndarray[Any, Any]], prefix: str, entry: dict[str, Any]) -> Profile:
    """Read a profile; one saved before signatures were kept gets its own from the probes."""
    parts = {part: tensors.get(prefix + part) for part in _PROFILE}
    if parts["signature"] is None:
        probes, mean, whitening = (tensors[prefix + part] for part in ("probes", "mean", "whitening"))
        _, found = left_out(probes, mean, whitening, n_rows=entry["rows"], shrinkage=entry["shrinkage"])
        parts["signature"] = signature(probes, found, mean, whitening)
    return Profile(**parts)  # type: ignore[arg-type]


def _dense(weights: Any) -> np.ndarray[Any, Any]:
    return np.asarray(weights.toarray() if hasattr(weights, "toarray") else weights)


def _ids(ids: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Ids as arrays that safetensors knows: integers, or UTF-8 bytes with the end of each."""
    if ids.dtype.kind in "iu":
        return {"ids": ids.astype(np.int64)}
    encoded = [str(value).encode() for value in ids.tolist()]
    ends = np.cumsum([len(value) for value in encoded])
    return {"ids.ends": ends.astype(np.int64), "ids.bytes": np.frombuffer(b"".join(encoded), np.uint8)}


def _named(tensors: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    if "ids" in tensors:
        return tensors["ids"]
    data, starts = tensors["ids.bytes"].tobytes(), [0, *tensors["ids.ends"].tolist()]
    return np.asarray([data[a:b].decode() for a, b in itertools.pairwise(starts)])
