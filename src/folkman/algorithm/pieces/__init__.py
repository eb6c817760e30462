"""What several methods are made of, and no paper by itself."""
