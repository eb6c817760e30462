"""What is learnt, and who holds which data."""
