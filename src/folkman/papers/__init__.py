"""Papers as data: their figures, claims and readings, and the generic code that reproduces and audits them."""
