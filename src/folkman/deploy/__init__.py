"""After learning: load the model of a run, predict with it, write it for other libraries."""
