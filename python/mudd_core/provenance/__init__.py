"""The statement of an export: where its weights come from, as hashes, and the comparison of files with it."""
