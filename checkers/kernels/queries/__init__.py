"""Questions about offsets: what the answers of leaders say about records that had been read before."""
