"""The former location of `record_run`, which is now in `tempo_trl.runs.record`."""

from tempo_trl.runs.record import record_run

__all__ = ["record_run"]
