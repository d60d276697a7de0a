"""Chat data: conversations, the text that a template renders from them, and the loss mask of its tokens."""
