"""Token caches: their files, and how they are written, found and sealed."""
