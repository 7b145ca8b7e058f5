"""An embedding that a network makes of the own columns."""
