"""The output of a run in training: progress line, log styles, tracker, MLPerf log, traces, samples, HTML page."""
