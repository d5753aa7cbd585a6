"""The main job on bundled real data: diagnose, certify, align, search, train, and a report of it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentlink.demo.job import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'latentlink.demo' has no attribute {name!r}")
    from latentlink.demo import job

    return getattr(job, name)
