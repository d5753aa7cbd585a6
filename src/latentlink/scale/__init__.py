"""The jobs over many files, on this machine's processes or on a Ray cluster, with the same result.

One span of one file is one task. Tasks are cut by the settings alone and their results are merged in the order
of the files, so the engine and the number of workers change nothing but the time.
"""

from latentlink.scale.engines import run_tasks
from latentlink.scale.jobs import convert, gather_moments

__all__ = ["convert", "gather_moments", "run_tasks"]
