"""Datasets in TRL's form: a `prompt`, and the columns that the rewards read."""
