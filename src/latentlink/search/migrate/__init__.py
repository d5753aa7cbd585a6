"""A new encoder for an index that exists: plan, fit, convert, shadow, gate, cut over, roll back.

A migration is a folder. Old vectors, old files and old indexes are only read, never changed.
"""

from latentlink.search.migrate.folder import (
    Migration,
    convert_corpus,
    fit,
    gate,
    open_migration,
    run_shadow,
)
from latentlink.search.migrate.planning import Plan, plan
from latentlink.search.migrate.serving import cut_over, fill_store, roll_back, serves
from latentlink.search.migrate.shadow import Shadow, learning_curve, recalibrate, shadow, uncertainty

__all__ = [
    "Migration",
    "Plan",
    "Shadow",
    "convert_corpus",
    "cut_over",
    "fill_store",
    "fit",
    "gate",
    "learning_curve",
    "open_migration",
    "plan",
    "recalibrate",
    "roll_back",
    "run_shadow",
    "serves",
    "shadow",
    "uncertainty",
]
