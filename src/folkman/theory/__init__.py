"""What the mathematics promises, measured: duality gaps, bounds, stable steps, efficiency."""
