"""What trainers have in common, and a folder for each of this project's own; :mod:`vfl_node.job.training` names them."""
