"""A party's half of a model as data: nodes of an ONNX graph, or steps of a SELECT. Trainers say what their halves are made of.

::

    half       what every half is and does
    graph      an ONNX graph under way
    columns    encoders of networks, raw cells in; design those of additive models
    networks   dense layers
    statement  a SELECT under way
    probes     rows that try every branch of an encoder
"""
