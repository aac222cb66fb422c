"""Which heads matter: exact removal, fast; cheap guesses of it; and how good they are."""
