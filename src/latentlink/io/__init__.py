"""Vectors and their ids from the files people have, streamed in bounded batches.

`open_vectors` reads a header and gives batches, `read_vectors` loads a whole file, `write_vectors` writes one.
"""

from latentlink.io._numpy import read_npz
from latentlink.io.sink import HashingStream, arrow_writer, write_vectors
from latentlink.io.source import BATCH_ROWS, SHARD_ROWS, SUFFIXES, Batch, VectorFile, open_vectors, read_vectors

__all__ = [
    "BATCH_ROWS",
    "SHARD_ROWS",
    "SUFFIXES",
    "Batch",
    "HashingStream",
    "VectorFile",
    "arrow_writer",
    "open_vectors",
    "read_npz",
    "read_vectors",
    "write_vectors",
]
