"""argv -> settings -> one verb. Each verb is one file and imports what it needs when it runs."""
