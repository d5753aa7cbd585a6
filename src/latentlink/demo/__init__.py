"""The main job on bundled real data: diagnose, certify, align, search, train, and a report of it all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentlink._lazy import lazy

if TYPE_CHECKING:
    from latentlink.demo.job import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "job"))
