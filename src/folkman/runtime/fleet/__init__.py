"""One operator and many nodes: status, logs, stop and collect over the nodes' own mutual TLS."""
