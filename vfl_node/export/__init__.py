"""Trained halves as files of their own: they leave the product, and work without it and without torch.

::

    folders    what a party keeps of a job → its half
    checks     the same rows through the file and through the half: no file leaves that says another thing
    sql        a half without hidden layers as one SELECT
    card       what a reader must know, without a cell of a table
    exporting  writes the files of one half
    loaded     reads an ONNX file again, with numpy and onnxruntime alone
    joining    all halves in one place, for one owner of all tables

A half never has anything of another party. Whoever has all halves predicts without limits and without a ledger.
"""
