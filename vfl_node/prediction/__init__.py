"""The prediction service of a node: a model that an earlier job trained, as it is asked and answered.

A job with ``predict`` is a job like any other: all nodes hold it, wait for each other and go on after a restart. With
``rows: known`` it is a service that runs until it is cancelled, and the owner's requests are answered one after the other in
one conversation. With ``rows: new`` it intersects a file of new records with the peers' tables, predicts once, and ends::

    jobs       which job predicts by a model, and who may ask
    requests   what the owner asks, and what comes back: files of records
    models     a party's half of the model, as its training has left it
    play       a party's run of the job, from its inputs to the report

How the halves of a model predict together, and what each party learns by it, is the trainer's
:class:`~vfl_node.training.predictor.Predictor`; what trainers have in common of it is :mod:`vfl_node.training.prediction`.
"""
