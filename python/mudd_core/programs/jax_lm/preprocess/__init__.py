"""Makes rows of a fixed length out of documents and writes them as Parquet files (docs/coming-from/jax_lm.md)."""
