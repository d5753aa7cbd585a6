"""The jobs over many files on other engines than this process: on several processes, or on a Ray cluster.

`latentlink.spaces.file_moments`, `latentlink.spaces.fit_files` and `latentlink.search.convert` cut their work into
tasks, one for each span of each file, and take a `run` that runs them. `engine` makes one. Tasks are cut by the
settings alone and their results are merged in the order of the files, so the engine and the number of workers
change nothing but the time.
"""

from latentlink.scale.engines import engine

__all__ = ["engine"]
