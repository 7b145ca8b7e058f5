"""What reads a party's input, one module a format; :data:`vfl_node.settings.source.READERS` has their names."""
