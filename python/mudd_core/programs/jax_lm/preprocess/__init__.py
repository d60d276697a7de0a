"""Preprocessing: documents to Parquet files of fixed-length sequences (docs/coming-from/jax_lm.md)."""
