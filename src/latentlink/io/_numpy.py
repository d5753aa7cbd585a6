"""NumPy's own files, npy and npz, opened without trusting their headers and never unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from latentlink._checks import InvalidInput
from latentlink.io._reader import AnyArray, Block, Reader, pick, spans

# A deflated member larger than this may not be more than this many times larger than its bytes on disk:
# float vectors deflate by less than ten, a bomb of zeros by a thousand.
_BOMB_BYTES = 64 << 20
_BOMB_RATIO = 100


class Npy(Reader):
    """A npy file, read slice by slice: a memory map would count as resident memory."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as stream:
            shape, self.fortran, self.dtype, self.offset = _header(stream, str(path))
        _whole(str(path), shape, self.dtype, path.stat().st_size - self.offset)
        super().__init__(path, shape)

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        if self.fortran:
            x: AnyArray = np.memmap(
                self.path, self.dtype, "r", offset=self.offset, shape=(self.rows, self.dimension), order="F"
            )
            for low, high in spans(start, stop, batch_rows):
                yield Block(np.ascontiguousarray(x[low:high]), None)
            return
        with open(self.path, "rb") as stream:
            stream.seek(self.offset + start * self.dimension * self.dtype.itemsize)
            for low, high in spans(start, stop, batch_rows):
                flat = np.fromfile(stream, self.dtype, (high - low) * self.dimension)
                yield Block(flat.reshape(high - low, self.dimension), None)


class Npz(Reader):
    """A npz file, read whole: its members are compressed streams."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        self.arrays = read_npz(path)
        if len(self.arrays) == 1 and column is None:
            self.vectors, self.ids = next(iter(self.arrays.values())), None
        else:
            name = pick(str(path), list(self.arrays), column, ["vectors", "embeddings"], "vectors")
            ids = pick(str(path), list(self.arrays), id_column, ["ids", "id"], None)
            self.vectors, self.ids = self.arrays[name], self.arrays[ids] if ids else None
        super().__init__(path, self.vectors.shape, self.ids is not None)
        if self.ids is not None and self.ids.shape != (self.rows,):
            raise InvalidInput(
                f"ids of {path} has shape {self.ids.shape}; needs ({self.rows},), one for each row."
            )

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        for low, high in spans(start, stop, batch_rows):
            yield Block(self.vectors[low:high], None if self.ids is None else self.ids[low:high])


def read_npz(path: Path) -> dict[str, AnyArray]:
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
