"""What a run says while it trains: the progress line, log styles, the tracker, the MLPerf log, traces, samples."""
