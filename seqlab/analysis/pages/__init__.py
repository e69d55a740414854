"""Pages to point at: attention and gates as HTML that needs nothing beside it."""
