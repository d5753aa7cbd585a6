"""NumPy's own files, npy and npz, opened without trusting their headers and never unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from latentlink._checks import InvalidInput

# A deflated member larger than this may not be more than this many times larger than its bytes on disk:
# float vectors deflate by less than ten, a bomb of zeros by a thousand.
_BOMB_BYTES = 64 << 20
_BOMB_RATIO = 100


def read_npy(path: Path) -> np.ndarray[Any, Any]:
    """Map a npy file into memory after comparing its header with its size."""
    with open(path, "rb") as stream:
        shape, fortran, dtype, offset = _header(stream, str(path))
    _whole(str(path), shape, dtype, path.stat().st_size - offset)
    if 0 in shape:
        return np.empty(shape, dtype)
    order: Any = "F" if fortran else "C"
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


def read_npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read every array of a npz file, refusing members that inflate beyond reason."""
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise InvalidInput(f"{path} is not a npz file ({error}); write it with numpy.savez.") from error
    arrays = {}
    with archive:
        for member in archive.infolist():
            name = f"{path}:{member.filename}"
            ratio = member.file_size / max(1, member.compress_size)
            if member.file_size > _BOMB_BYTES and ratio > _BOMB_RATIO:
                raise InvalidInput(
                    f"{name} inflates {ratio:.0f}-fold to {member.file_size} bytes; needs at most "
                    f"{_BOMB_RATIO}-fold. If you trust it, write it again with numpy.savez, not compressed."
                )
            with archive.open(member) as stream:
                shape, fortran, dtype, offset = _header(stream, name)  # type: ignore[arg-type]
                _whole(name, shape, dtype, member.file_size - offset)
                flat = np.frombuffer(stream.read(), dtype=dtype)
            array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
            arrays[member.filename.removesuffix(".npy")] = array
    return arrays


def _header(stream: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, order, type and the length of the header in bytes."""
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except ValueError as error:
        raise InvalidInput(f"{name} is not a npy file ({error}); write it with numpy.save.") from error
    if dtype.hasobject:
        raise InvalidInput(
            f"{name} holds Python objects; needs numbers or strings. Objects are never unpickled."
        )
    return shape, fortran, dtype, stream.tell()


def _whole(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], available: int) -> None:
    needed = dtype.itemsize
    for length in shape:  # Python integers: a header may claim more than 2^63 bytes
        needed *= length
    if needed != available:
        raise InvalidInput(
            f"{name} claims shape {shape} of {dtype}, {needed} bytes, but holds {available}; "
            "it is cut off or its header is wrong. Write it again."
        )
