"""What a run leaves behind for others: its record, a model card, and both with the model on the Hub."""
