"""Step records: reading them, cutting out a cell's share, the recorder's switch; a virtual GPU's clock."""
