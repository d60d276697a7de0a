"""A model in planned graphs: training step, evaluation, generation, memory."""
