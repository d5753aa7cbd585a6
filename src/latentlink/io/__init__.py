"""Vectors and their ids from the files people have, streamed in bounded batches.

`read_vectors` loads a whole file.
"""

from latentlink.io._numpy import read_npy, read_npz
from latentlink.io.source import read_vectors

__all__ = ["read_npy", "read_npz", "read_vectors"]
