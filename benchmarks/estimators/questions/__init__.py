"""One file per question: `measure` returns records, `table` and `draw` show them."""
