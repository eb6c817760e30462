"""Papers as data: figures, claims and readings, and the code that reproduces and audits them."""
