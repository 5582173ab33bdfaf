"""Train every method on a tiny model and compare two commits bit for bit: `python -m tests.reference`."""
