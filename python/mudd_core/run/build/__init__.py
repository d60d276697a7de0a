"""The parts of a run and their cost: data, model, engine, memory, the plan, initial weights."""
