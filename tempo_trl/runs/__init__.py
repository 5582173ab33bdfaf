"""What a run leaves on disk, and reading it: record, log, results, trees; several runs at once; statistics."""
