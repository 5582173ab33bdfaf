"""The demo: orders in JSON for a language model, and sums with known slips for a tiny one; trained, then shown."""
