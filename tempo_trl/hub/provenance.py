"""The address at which `record_run` was until it moved to `tempo_trl.runs.record`."""

from tempo_trl.runs.record import record_run

__all__ = ["record_run"]
