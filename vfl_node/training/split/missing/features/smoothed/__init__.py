"""A draw from the cloud of own rows around a random one."""
