"""TRL's own tests of GRPOTrainer, from a clone of TRL, with GRPOTrainer and with TEMPOTrainer in its place."""
