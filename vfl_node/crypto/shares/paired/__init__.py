"""Operations on shares of two parties that no dealer helps.

===============  =====================================================================================================
file             what
===============  =====================================================================================================
``blocks``       how many rows a ciphertext of columns has
``tools``        keys of both parties, and the columns of each under the other's eyes
``correlations``     random values that two parties make together ahead of need
``stock``        what was made ahead, on the disk; and the look ahead at what a program will need
``machine``      a party's machine
``operations``   what is done with them: products, bits times numbers, truncations
``curves``       sums of sines
``clamps``       scores brought into a range
``counts``       histograms of scores
``kit``          all of it, as a training uses it
===============  =====================================================================================================

Both parties follow the protocol. What each of them sees are ciphertexts of the other, and numbers under masks.
"""
