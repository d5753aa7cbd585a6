"""The tails of a training run in its trainer's log: a callback of Lightning, for any module of two views."""

from __future__ import annotations

from typing import Any

from latentlink import _checks
from latentlink.train.monitor import TailMonitor, numbers

_lightning = _checks.need("lightning.pytorch", extra="train", job="TailLog")


class TailLog(_lightning.Callback):  # type: ignore[misc, name-defined]
    """Log what the top of the similarities does, and stop a run that has collapsed.

    For any module whose `training_step` returns a dict with "loss", and "z0" and "z1" (n, d); what is logged is
    what `latentlink.train.monitor.observe` measures. On several processes each looks at its own share of a
    batch and the first one logs.

    Parameters
    ----------
    every : int
        Steps between looks.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = _checks.integer("every", every, low=1)
        self._monitor: TailMonitor | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take up the module's loss, whose gate and gradient are to be looked at."""
        self._monitor = TailMonitor(getattr(pl_module, "loss", None), self.every)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look, log and perhaps stop."""
        if self._monitor is None or not isinstance(outputs, dict) or "z0" not in outputs:
            return
        seen = self._monitor.look(trainer.global_step - 1, outputs["z0"], outputs["z1"], float(outputs["loss"]))
        if seen is not None:
            # Straight to the loggers: `log_dict` would repeat these numbers at every step until the next look.
            for logger in trainer.loggers:
                logger.log_metrics(numbers(seen), step=trainer.global_step - 1)
