"""Many encoders in one frame: shared anchors, translation between spaces, and honest rivals beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentlink._lazy import lazy

if TYPE_CHECKING:
    from latentlink.spaces.artefact import load_space
    from latentlink.spaces.audits import Audit, audit, audit_batches
    from latentlink.spaces.compare import compare_maps, learning_curve
    from latentlink.spaces.foreign import Diagnosis, doctor, foreign_rows
    from latentlink.spaces.relative import RelativeSpace
    from latentlink.spaces.scores import CertifiedSearch, MapComparison, MapScore
    from latentlink.spaces.stitch import Head, StitchReport, carry_threshold, measure_stitch
    from latentlink.spaces.streaming import encode_file, file_moments, fit_files
    from latentlink.spaces.translate import fit_cca, fit_low_rank, fit_procrustes, fit_ridge

_HOMES = {
    "Audit": "audits",
    "CertifiedSearch": "scores",
    "Diagnosis": "foreign",
    "Head": "stitch",
    "MapComparison": "scores",
    "MapScore": "scores",
    "RelativeSpace": "relative",
    "StitchReport": "stitch",
    "audit": "audits",
    "audit_batches": "audits",
    "carry_threshold": "stitch",
    "compare_maps": "compare",
    "doctor": "foreign",
    "encode_file": "streaming",
    "file_moments": "streaming",
    "fit_cca": "translate",
    "fit_files": "streaming",
    "fit_low_rank": "translate",
    "fit_procrustes": "translate",
    "fit_ridge": "translate",
    "foreign_rows": "foreign",
    "learning_curve": "compare",
    "load_space": "artefact",
    "measure_stitch": "stitch",
}

__all__ = [
    "Audit",
    "CertifiedSearch",
    "Diagnosis",
    "Head",
    "MapComparison",
    "MapScore",
    "RelativeSpace",
    "StitchReport",
    "audit",
    "audit_batches",
    "carry_threshold",
    "compare_maps",
    "doctor",
    "encode_file",
    "file_moments",
    "fit_cca",
    "fit_files",
    "fit_low_rank",
    "fit_procrustes",
    "fit_ridge",
    "foreign_rows",
    "learning_curve",
    "load_space",
    "measure_stitch",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
