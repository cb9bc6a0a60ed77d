"""What is true of a host: facts are data, gathered without changing anything."""
