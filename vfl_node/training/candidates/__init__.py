"""FedSim: training over candidates, each row with several records of the passive party that are like it."""
