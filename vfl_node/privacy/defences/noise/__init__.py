"""Normal noise on what is sent."""
