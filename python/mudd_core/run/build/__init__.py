"""What a run is made of, and what it costs: data, model, engine, memory, the plan, what it starts from."""
