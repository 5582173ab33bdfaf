"""The report of a run: metrics, recorded trees, pictures and an HTML page."""

from tempo_trl.runs.trees import read_trees

__all__ = ["read_trees"]
