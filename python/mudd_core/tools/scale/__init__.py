"""What a training will cost on several machines: docs/scale.md."""
