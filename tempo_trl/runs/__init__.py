"""Read and write the files of a run: record, log, results, trees; text of its messages and tokens. Statistics."""
