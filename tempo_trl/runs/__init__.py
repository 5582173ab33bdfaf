"""Read and write the files of a run: record, log, results, trees. Read several runs at once. Statistics."""
