"""One question a file: `measure` gives records, `table` and `draw` show them."""
