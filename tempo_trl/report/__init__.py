"""The report of a run: metrics, recorded trees, pictures and an HTML page."""


def __getattr__(name: str):
    if name == "read_trees":  # pandas and pyarrow: not needed to train
        from tempo_trl.runs.trees import read_trees

        return read_trees
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["read_trees"]
