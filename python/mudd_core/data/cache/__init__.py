"""Token caches: the files of one, and how a cache is written, found and sealed."""
