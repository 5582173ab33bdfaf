"""The loop: TRL's `GRPOTrainer` with one seam, at which a credit function turns a scored batch into advantages."""
