"""Sections of the page that only some model families have. FAMILY_SECTIONS in run_page.py lists them."""
