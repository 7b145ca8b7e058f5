"""What people write, and how it is read: keys, YAML, versions, registries."""
