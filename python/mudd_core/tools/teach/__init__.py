"""The command teach and mc.teach: write a teacher's likeliest tokens for each target of the data."""
