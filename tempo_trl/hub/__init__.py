"""Publish a run on the Hub: its model, model card and record."""
