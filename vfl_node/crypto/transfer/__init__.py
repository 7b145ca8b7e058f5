"""Random oblivious transfers between two parties, and products of a bit and a number that are made of them.

One party, the receiver, has a bit and gets the key of that bit. The other party, the sender, gets both keys and does not learn
the bit. The receiver does not learn the other key. Neither party needs a third one.

=============  =======================================================================================================
file           what
=============  =======================================================================================================
``sizes``      how many bytes the messages have, for those who only count
``base``       128 transfers on an elliptic curve, once for two parties
``blocks``     a matrix of bits transposed, and the hash that makes keys of its columns
``extension``  any number of transfers made of those 128, with AES alone
``products``   a bit of one party times a number of the other, in shares modulo 2⁶⁴
=============  =======================================================================================================

The roles cross: the sender of the 128 base transfers is the receiver of all others, and the reverse. In order: the future
receiver sends :attr:`base.BaseSender.announcement`, the future sender answers once, and from then on each
:meth:`extension.RandomReceiver.extend` needs one message, from the receiver to the sender.

Two parties make base transfers anew for each job. Nothing here is a stream: all that is drawn depends on a party's seed and on
a *place*, a text that names where in a job the transfers are used. A party that is restarted repeats its messages byte by
byte, in any order of places.

Both parties are semi-honest: they follow the protocol, and may think about what they see as long as they like. A party that
does not follow it can learn the other's secrets: a receiver whose choice differs from row to row of its message learns bits
of the sender's secret. The checks of messages refuse what is malformed, and no more than that.

Source: Ishai, Kilian, Nissim and Petrank 2003, "Extending oblivious transfers efficiently"; Chou and Orlandi 2015, "The
simplest protocol for oblivious transfer"; Guo, Katz, Wang and Yu 2020, "Efficient and secure multiparty computation from
fixed-key block ciphers"; Gilboa 1999, "Two party RSA key generation", for products from transfers.
"""
