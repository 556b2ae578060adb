"""tangens."""
