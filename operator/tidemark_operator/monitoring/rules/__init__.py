"""Recording rules and alerts as values, and how they become files."""
