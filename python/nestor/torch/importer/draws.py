"""Random numbers that follow from a seed and an element's place: Philox 4x32 with ten rounds, as Inductor's code draws them.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The key is the seed, the counter
the place. Inductor takes Triton's tl.rand on a GPU, with both words of the seed, and at::Philox4_32 on a CPU, with the low one.
"""

from ...nests.affine import Affine
from ...nests.values import Value, as_type, constant, from_affine, mul_high_unsigned, select
from .extents import Unsupported, atoms_of, product
from .lazy import Lazy
from .table import RULES, name_of, op

ROUNDS = 10
FACTORS = 0xD2511F53, 0xCD9E8D57  #: of the first and the third word of a counter
STEPS = 0x9E3779B9, 0xBB67AE85  #: what a round adds to the words of the key
SCALE = 4.6566127342e-10  #: of 31 bits, to a number from 0 to below 1
_MOST_ELEMENTS = 1 << 31  # places are words


def word(number):
    """32 bits as an integer of a nest, which has a sign."""
    return constant(number - (1 << 32) if number >> 31 else number, "i32")


def _low(a, b):
    """The product modulo 2^32. That of an index is no index: it wraps."""
    return Value("mul", "i32", (a, b))


def _step(key, number, step):
    """A word of the key in a round."""
    return key if number == 0 else key + word(number * step & 0xFFFFFFFF)


def philox(place, key):
    """The first of the four words for the counter (place, 0, 0, 0) and a key of two words."""
    zero = word(0)
    counter = [place, zero, zero, zero]
    for number in range(ROUNDS):
        first, second, third, fourth = counter
        keys = [_step(each, number, step) for each, step in zip(key, STEPS)]
        counter = [_mixed(_high(third, 1), second, keys[0]), _low(third, word(FACTORS[1])),
                   _mixed(_high(first, 0), fourth, keys[1]), _low(first, word(FACTORS[0]))]
    return counter[0]


def _high(a, number):
    return mul_high_unsigned(a, word(FACTORS[number]))


def _mixed(*words):
    """Exclusive or of words. What follows from a counter's zeros is left out."""
    found = None
    for each in words:
        if not _is_zero(each):
            found = each if found is None else found ^ each
    return word(0) if found is None else found


def _is_zero(value):
    """Whether a word is plainly 0: itself, or as a factor."""
    return value.op == "constant" and value.payload == 0 or value.op in ("mul", "mul_high_unsigned") and any(map(_is_zero, value.args))


@op("prims.inductor_random.default", kind="pointwise", note="uniform; the numbers that Inductor draws on the device", words=(1,))
def random(context, size, seed, mode):
    if mode != "rand":
        raise Unsupported("random numbers that are not uniform")
    count = product(context.shape)
    if count.is_Integer and count > _MOST_ELEMENTS:
        raise Unsupported("more random numbers than places of 32 bits")
    dims = tuple(atoms_of(extent) for extent in context.shape)
    extents = context.builder.extents([atom for dim in dims for atom in dim])
    low, high = (seed.element((Affine((), number),)) for number in range(2))
    on_cpu = context.device.type == "cpu"

    def element(indices):
        place = constant(0)
        for index, extent in zip(indices, extents):
            place = place * from_affine(extent) + from_affine(index)
        bits = philox(place, [low, word(0) if on_cpu else high])
        positive = bits & word(0x7FFFFFFF) if on_cpu else select(bits < 0, bits ^ word(0xFFFFFFFF), bits)
        return as_type(positive, "f32") * SCALE

    return Lazy(dims, context.dtype, element, 1)


def are_drawn(walk, nodes):
    """Whether members of a walk are made of random numbers, and of nothing in memory but seeds."""
    inside, seeds = set(nodes), False
    for node in nodes:
        rule = RULES.get(name_of(node.target))
        for source in walk.sources(node):
            if source not in inside:
                if not rule or not rule.words:
                    return False
                seeds = True
    return seeds
