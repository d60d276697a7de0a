"""The commands `data convert` and `data inspect`: files of one format from another, and what files hold."""
