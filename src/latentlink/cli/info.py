"""`latentlink info`: versions and which extras are installed."""

from __future__ import annotations

import importlib.metadata
import platform

from latentlink.cli._frame import Json, emit

_EXTRAS = {
    "search": ["faiss-cpu"],
    "files": ["pyarrow", "h5py"],
    "report": ["matplotlib", "jinja2"],
    "torch": ["torch"],
    "train": ["lightning", "torchvision", "timm"],
    "text": ["sentence-transformers"],
    "ray": ["ray"],
    "qdrant": ["qdrant-client"],
    "pgvector": ["psycopg", "pgvector"],
}


def info(json: Json = False) -> None:
    """Say which version this is and which extras are installed."""
    versions = {name: _version(name) for name in ["latentlink", "numpy", "scipy", "scikit-learn"]}
    extras = {extra: {name: _version(name) for name in names} for extra, names in _EXTRAS.items()}
    lines = [f"{name} {version}" for name, version in versions.items()]
    lines.append(f"python {platform.python_version()}")
    for extra, found in extras.items():
        missing = [name for name, version in found.items() if version is None]
        state = f'missing {", ".join(missing)}: pip install "latentlink[{extra}]"' if missing else "installed"
        lines.append(f"{extra:9} {state}")
    emit("\n".join(lines), {"versions": versions, "extras": extras}, as_json=json)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
