"""Many bytes through each kind of connection, both ways, compared by hash."""
