"""The commands `data convert`, between file formats, and `data inspect`, which summarizes files."""
