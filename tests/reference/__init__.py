"""What every method did at the commit that the reference was made from, and whether it still does."""
