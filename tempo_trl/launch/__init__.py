"""The command line: from a recipe and flags to a checked, launched run."""
