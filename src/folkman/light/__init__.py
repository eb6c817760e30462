"""What a node without JAX computes with: NumPy under JAX's names and rules (`folkman.arrays`).

Only as much of JAX is here as methods, packings and nodes use. What is not here is refused with a
sentence, never computed in another way.
"""
