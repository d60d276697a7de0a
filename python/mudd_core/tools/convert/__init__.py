"""The commands `data convert` and `data inspect`: files of one format out of another, and what files hold."""
