"""Another implementation reads our ciphertexts, and we read its own: python-paillier (phe)."""

from __future__ import annotations

import pytest
from gmpy2 import mpz

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import PrivateKey
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline

HERE = Inline()

# Made with phe 1.5.0: a key of 512 bits and ciphertexts of five numbers, negative ones as residues.
KEY = PrivateKey(
    0xDFD397407AA099217FDF5FF018C0976C73D5D0CDA33D10725357DB7503BA3201,
    0xE6098D966D3250115A2BA6FE954C9CD229CF50DEDB95C886FD7B5431C0A8D7FD,
)
CIPHERTEXTS = [
    "583616ec1038468d90eac380e8bb0ca136fc830322fe98ca816c590026fec5ac378b64993ff17a2670476b9127b6aa2e8fb0"
    "78e51daf9df5f912068d550a380741462b5a99f01d56bea5a466020f8eba017b69c02b27781b33af6814a6ecdc28c0ec44dc"
    "508c31aabed10a9423aff5449a6fd2e346af03e5293160d370060f3f",
    "4a39bc092f996dcdc1aa5a5de9e31f37b2046b4efa799504b55dc198f77e025f78154622f4d04b796ecdb62e1b9a0cf2aa48"
    "d81944b63955a2d3f6f8a725668a1f107c54aa6461aec16d73a1f5c4a3081a67e9af15358753c7269b14690bd371120f1b73"
    "9824325439d3f92eb2c36d4304c8cd4f4259b8f9007d1ec3c4af5700",
    "72280286f71c53d69b15ac5f9e98329ce50122fc5f6091227bd761b312d776a659505d244577d1831a3165a63e6513b0d1d8"
    "aa002a60d4de6d1d05e2fdaf1bca0d3b437363ab327cdd28d25f2611e2c737e9a43363a9fda19a48bd90978a360a47d86ae2"
    "83fa46d402947184a3b6146faf15bb46db20c074faa508fcad38f56",
    "162a1eb8386edeed4198915d44a882a1fe2a5896677e71d9730b969571484b41e894b2059ef07a825fba9ca48055387d6cc0"
    "96dd96fb6f1a0c3faf420f01cb975e454b88cf7d2d6f352dab0786374faccc2f2be27fd9ad14533e1a54749a656d397da503"
    "9e46eaae238b2df9a8385cff6c09fee6679d36a3bec2d88124c573db",
    "8ce85f9f70b9610a2cf5930f793b4f8593e98c9c5c910601d53b75c8b9fd98bd274615a44c0e6d49c145274ec2f5bc381248"
    "d9ec88ea32d0e225c7c303bf91daba77a9c4db004b02b32b182f0f7c2da04933b6a105299a9e099dd9e1ae0ce45bbcb2510f"
    "5df2bac59e86e24f465415c285be5c68ba6d8851e2024816e4b08482",
]
VALUES = [0, 1, -1, 2**200, -(2**200) - 7]


def test_published_ciphertexts_decrypt():
    n = KEY.public.n
    rows = KEY.public.rows([mpz(int(text, 16)) for text in CIPHERTEXTS])
    assert decrypt(KEY, rows, HERE) == [value % n for value in VALUES]
    again = Encryptor(KEY.public, Randomness(bytes(32)), HERE, private=KEY).rerandomise(rows, "again")
    assert decrypt(KEY, again, HERE) == [value % n for value in VALUES]


def test_a_key_of_another_implementation_passes_the_checks():
    keys.check(KEY.public, 512)
    keys.verify(KEY.public, keys.prove(KEY, b"context"), b"context")


@pytest.mark.parametrize("bits", [512, 1024])
def test_both_directions_live(bits):
    phe = pytest.importorskip("phe", reason="python-paillier is not installed")
    theirs = phe.PaillierPublicKey(KEY.public.n)
    assert phe.PaillierPrivateKey(theirs, KEY.p, KEY.q).raw_decrypt(int(CIPHERTEXTS[1], 16)) == 1
    key = keys.generate(bits, Randomness(b"k" * 32))
    public = phe.PaillierPublicKey(key.public.n)
    private = phe.PaillierPrivateKey(public, key.p, key.q)
    values = [*VALUES, key.public.n // 2]
    encryptor = Encryptor(key.public, Randomness(b"e" * 32), HERE)
    made = encryptor.encrypt(values, "a")
    for ciphertexts in (made, encryptor.rerandomise(made, "b"), encryptor.blind(made, "c")):
        read = [private.raw_decrypt(int(number)) for number in key.public.integers(ciphertexts)]
        assert read == [value % key.public.n for value in values]
    rows = key.public.rows([mpz(public.raw_encrypt(value % key.public.n)) for value in values])
    assert decrypt(key, rows, HERE) == [value % key.public.n for value in values]
    total = public.encrypt(20) + public.encrypt(-62)
    assert decrypt(key, key.public.rows([mpz(total.ciphertext())]), HERE) == [key.public.n - 42]
