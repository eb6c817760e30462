"""Xie et al., IEEE Internet of Things Journal 2024: figures, claims and what is really its own."""
