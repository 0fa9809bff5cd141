"""Step records: reading what the engine's processes wrote, cutting a cell's share out of it, and the
recorder's switch; the clock's."""
