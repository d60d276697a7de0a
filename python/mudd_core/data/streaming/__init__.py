"""Documents that separate processes tokenize while the run trains (data.cache=stream)."""
