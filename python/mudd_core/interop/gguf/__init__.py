"""GGUF, the file of llama.cpp and Ollama: its names of weights and settings, and its tokenizers."""
