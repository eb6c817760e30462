"""What the mathematics promises, measured: duality gaps, convergence bounds, stable steps, efficiency."""
