"""The parts of a run and their cost: data, model, engine, memory, plan, initial weights."""
