"""Where jobs run: processes of this machine, or a dask cluster."""
