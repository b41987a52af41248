"""Which requests a step runs, in which phase and in which slots."""
