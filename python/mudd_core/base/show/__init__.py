"""What people look at: charts, tables, the terminal, and text that is safe to show there."""
