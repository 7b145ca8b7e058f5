"""Private set intersection in pairs with the active party."""
