"""The words that two owners compare by telephone: 256 of them, a byte each.

Each word is spelled and said in one way only, has one meaning, and differs from every other in its first four letters. So two
people who hear each other badly still notice another word.
"""

from __future__ import annotations

import hashlib

COMPARED = 4
"""How many words two owners compare: a stranger's words are the same in one of four thousand million cases."""

COMPARED_OF_CARD = 10
"""How many words two owners compare of a card that was told: who tells it may search for one with the same words for years."""

_LIST = """
acorn actor admiral agent album almond amber anchor anthem apple apron arrow artist atlas autumn avocado badger bagel
balcony bamboo banana basket beaver bicycle biscuit blanket bonfire bottle bracelet bridge broccoli bucket butter cabin
cactus camera candle canyon carpet castle cedar cello cheese cherry chimney cinema circus clarinet clover cobra coconut
coffee comet compass copper cottage cowboy cradle cricket crystal cucumber curtain cushion daisy denim dentist diamond
dinosaur doctor dolphin domino donut dragon drawer eagle earring elbow elephant emerald emperor engine envelope escalator
falcon farmer feather fiddle finger flamingo forest fossil freezer frog galaxy garden garlic gazelle giraffe glacier goblin
gorilla grandma gravel guitar hammer harbour harpoon hazelnut helmet hermit hippo honey hotel husky iceberg iguana island
ivory jaguar jasmine jasper jelly jigsaw juggler jungle kangaroo kayak kettle kitchen kiwi koala ladder lagoon lantern lemon
leopard lettuce library lizard lobster locomotive magnet mammoth marble medal megaphone mermaid meteor mineral mirror monkey
mosquito mountain muffin museum mustard napkin necklace needle notebook nurse oasis octopus olive omelette onion opera
orange orchid ostrich oxygen painter palace papaya paprika parrot peacock pebble pelican pencil penguin piano picnic pigeon
pillow pirate polar polenta popcorn porridge potato pretzel prince pumpkin puppet pyramid quartz queen quilt rabbit raccoon
radish rainbow raven ribbon river robot rocket saddle sailor salad sandal satellite saxophone scarf school scissors scorpion
shampoo shovel sidewalk skeleton slipper snail soldier spider spoon squirrel stadium statue stomach storm sugar sunset
surfer swamp sweater syrup tablet tambourine tango teapot tiger tractor umbrella unicorn vampire velvet violin volcano
waffle walnut window yogurt zebra zeppelin
"""

WORDS = tuple(_LIST.split())
"""Byte → its word."""


def spell(secret: bytes) -> tuple[str, ...]:
    """The bytes of ``secret`` as words."""
    return tuple(WORDS[byte] for byte in secret)


def spell_card(digest: str) -> tuple[str, ...]:
    """The words of a card by its ``digest``, in hex.

    Each card has words of its own. If two cards shared theirs, who stands between could look for a pair of false ones that fit
    each other: for 80 bits after 2⁴⁰ tries, not 2⁸⁰.

    Cost: 16 MiB and about 50 ms, so that each try of a search costs as much.
    """
    return spell(hashlib.scrypt(bytes.fromhex(digest), salt=b"vfl-card-words-1", n=1 << 14, r=8, p=1, dklen=COMPARED_OF_CARD))
