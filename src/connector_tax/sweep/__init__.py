"""A sweep of campaigns: their files, how they are measured one after another, where each stands, and one table of all."""
