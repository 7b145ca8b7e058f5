"""Learning from the active party's rows outside of the alignment: methods that fill in the embedding which they lack.

A row outside has columns and a label at the active party, and no partner at the passive one. A method makes up the embedding
that the partner would have given; a local branch of the network learns from it (:mod:`vfl_node.training.split.outside`).

Source: Wei et al. 2023, FedAds: A Benchmark for Privacy-Preserving CVR Estimation with Vertical Federated Learning (SIGIR),
section 4.1.
"""
