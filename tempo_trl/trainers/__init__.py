"""The training loop: TRL's `GRPOTrainer`, in which a credit function computes the advantages of a scored batch."""
