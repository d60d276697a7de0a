"""Chat data: conversations, the text that a template makes of them, and which of its tokens count."""
