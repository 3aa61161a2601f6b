"""Recurrences with reductions in their steps, written in Python as a user would, each beside a plain loop of what it means.

CASES has {name: (nest, sizes, make, reference)}, as own_operators has them.
"""

from support import numpy

import nestor
from nestor import Size, Tensor, define, f32, indices

times, width = Size("times", 10), Size("width", 33)
t, s, j, l = indices(t=times, s=width, j=width, l=width)
(a,) = indices(a=times - 1)


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


@nestor.nest
def rnn(x: f32[times, width], weight: f32[width, width]):
    state = define("state", (t, s), x[t, s], where=t == 0)
    came = nestor.sum(state[a, j] * weight[s, j], over=j)
    return state.write((a, s), (a + 1, s), nestor.tanh(came / 16 + x[a + 1, s]))


def _rnn(x, weight):
    state = [x[0]]
    for now in x[1:]:
        state.append(numpy.tanh(weight @ state[-1] / 16 + now))
    return (numpy.stack(state),)


@nestor.nest
def rnn_from_nothing(x: f32[times, width], weight: f32[width, width]):
    """One statement for all steps: the first has no state before it."""
    state = Tensor("state", f32, (times, width))
    came = nestor.sum(state[t - 1, j] * weight[s, j], over=j)
    return state.write((t, s), (t, s), nestor.tanh(x[t, s] + nestor.select(t >= 1, came / 16, 0.5)))


def _rnn_from_nothing(x, weight):
    state = [numpy.tanh(x[0] + 0.5)]
    for now in x[1:]:
        state.append(numpy.tanh(weight @ state[-1] / 16 + now))
    return (numpy.stack(state),)


@nestor.nest
def hmm_forward(emit: f32[times, width], change: f32[width, width]):
    """Logarithms of what is likely, with a maximum and a sum in each step."""
    score = define("score", (t, s), emit[t, s], where=t == 0)
    come = score[a, j] + change[j, s]
    most = nestor.max(come, over=j)
    return score.write((a, s), (a + 1, s), most + nestor.log(nestor.sum(nestor.exp(come - most), over=j)) + emit[a + 1, s])


def _hmm_forward(emit, change):
    score = [emit[0]]
    for now in emit[1:]:
        score.append(numpy.logaddexp.reduce(score[-1][:, None] + change, axis=0) + now)
    return (numpy.stack(score),)


@nestor.nest
def viterbi(emit: f32[times, width], change: f32[width, width]):
    score = define("score", (t, s), emit[t, s], where=t == 0)
    best = nestor.max(score[a, j] + change[j, s], over=j)
    return score.write((a, s), (a + 1, s), best + emit[a + 1, s])


def _viterbi(emit, change):
    score = [emit[0]]
    for now in emit[1:]:
        score.append((score[-1][:, None] + change).max(0) + now)
    return (numpy.stack(score),)


@nestor.nest
def lstm(x: f32[times, 4, width], weight: f32[4, width, width]):
    """Two tensors step by step: the cell and what it shows."""
    hidden = define("hidden", (t, s), 0.0, where=t == 0)
    cell = define("cell", (t, s), 0.0, where=t == 0)

    def gate(number):
        return nestor.sum(hidden[a, j] * weight[number, s, j], over=j) / 8 + x[a, number, s]

    with nestor.steps(a):
        kept = nestor.sigmoid(gate(1)) * cell[a, s] + nestor.sigmoid(gate(0)) * nestor.tanh(gate(2))
        cell.write((a, s), (a + 1, s), kept)
        hidden.write((a, s), (a + 1, s), nestor.sigmoid(gate(3)) * nestor.tanh(cell[a + 1, s]))
    return hidden, cell


def _lstm(x, weight):
    hidden, cell = [numpy.zeros(x.shape[2])], [numpy.zeros(x.shape[2])]
    for now in x[:-1]:
        into, forget, new, out = weight @ hidden[-1] / 8 + now
        cell.append(sigmoid(forget) * cell[-1] + sigmoid(into) * numpy.tanh(new))
        hidden.append(sigmoid(out) * numpy.tanh(cell[-1]))
    return numpy.stack(hidden), numpy.stack(cell)


@nestor.nest
def gru(x: f32[times, 3, width], weight: f32[3, width, width]):
    """A sum of what a sum decides: the reset gate of each state that is added up."""
    hidden = define("hidden", (t, s), 0.0, where=t == 0)

    def gate(number, to):
        return nestor.sigmoid(nestor.sum(hidden[a, l] * weight[number, to, l], over=l) / 8 + x[a, number, to])

    new = nestor.tanh(nestor.sum(weight[2, s, j] * gate(0, j) * hidden[a, j], over=j) / 8 + x[a, 2, s])
    keep = gate(1, s)
    return hidden.write((a, s), (a + 1, s), keep * hidden[a, s] + (1 - keep) * new)


def _gru(x, weight):
    hidden = [numpy.zeros(x.shape[2])]
    for now in x[:-1]:
        last = hidden[-1]
        reset, keep = (sigmoid(weight[k] @ last / 8 + now[k]) for k in (0, 1))
        hidden.append(keep * last + (1 - keep) * numpy.tanh(weight[2] @ (reset * last) / 8 + now[2]))
    return (numpy.stack(hidden),)


@nestor.nest
def power_iteration(matrix: f32[width, width], start: f32[width]):
    """A vector that steps normalise: its length is known when all of it is."""
    vector = define("vector", (t, s), start[s], where=t == 0)
    with nestor.steps(a):
        product = define("product", (a, s), nestor.sum(matrix[s, j] * vector[a, j], over=j))
        length = define("length", a, nestor.rsqrt(nestor.sum(product[a, j] * product[a, j], over=j) + 1e-6))
        vector.write((a, s), (a + 1, s), product[a, s] * length[a])
    return vector


def _power_iteration(matrix, start):
    vector = [start]
    while len(vector) < 10:
        product = matrix @ vector[-1]
        vector.append(product / numpy.sqrt((product**2).sum() + 1e-6))
    return (numpy.stack(vector),)


@nestor.nest
def gauss_seidel(matrix: f32[width, width], right: f32[width]):
    """Sweeps in place: each unknown sees those before it as they are by now."""
    x = define("x", s, right[s])
    rest = nestor.sum(matrix[s, j] * x[j], over=j, where=~(j == s))
    return x.write((t, s), s, (right[s] - rest) / (matrix[s, s] * matrix[s, s] + 40))


def _gauss_seidel(matrix, right):
    x = right.copy()
    for _ in range(10):
        for row in range(len(x)):
            rest = matrix[row] @ x - matrix[row, row] * x[row]
            x[row] = (right[row] - rest) / (matrix[row, row]**2 + 40)
    return (x,)


@nestor.nest
def forward_substitution(matrix: f32[width, width], right: f32[width]):
    x = Tensor("x", f32, (width,))
    known = nestor.sum(matrix[s, j] * x[j], over=j, where=j < s)
    return x.write(s, s, (right[s] - known / 16) / (2 + matrix[s, s] * matrix[s, s]))


def _forward_substitution(matrix, right):
    x = numpy.zeros(len(right))
    for row in range(len(x)):
        x[row] = (right[row] - matrix[row, :row] @ x[:row] / 16) / (2 + matrix[row, row]**2)
    return (x,)


@nestor.nest
def backward_substitution(matrix: f32[width, width], right: f32[width]):
    """From the end: an index that falls."""
    x, row = Tensor("x", f32, (width,)), width - 1 - s
    known = nestor.sum(matrix[row, j] * x[j], over=j, where=j > row)
    return x.write(s, row, (right[row] - known / 16) / (2 + matrix[row, row] * matrix[row, row]))


def _backward_substitution(matrix, right):
    x = numpy.zeros(len(right))
    for row in reversed(range(len(x))):
        x[row] = (right[row] - matrix[row, row + 1:] @ x[row + 1:] / 16) / (2 + matrix[row, row]**2)
    return (x,)


size, tracks = Size("size", 4, fixed=True), Size("tracks", 5)
n, p, q, m, m2 = indices(n=tracks, p=size, q=size, m=size, m2=size)


@nestor.nest
def kalman(seen: f32[tracks, times], move: f32[size, size]):
    """States and covariances of many tracks; the first number of a state is seen."""
    state = define("state", (n, t, p), seen[n, t], where=t == 0)
    spread = define("spread", (n, t, p, q), nestor.select(p == q, 1.0, 0.0), where=t == 0)
    with nestor.steps(n, a):
        ahead = define("ahead", (n, a, p), nestor.sum(move[p, m] * state[n, a, m], over=m) / 4)
        wide = nestor.sum(move[p, m] * spread[n, a, m, m2] * move[q, m2], over=(m, m2)) / 16
        wider = define("wider", (n, a, p, q), wide + nestor.select(p == q, 0.1, 0.0))
        gain = define("gain", (n, a, p), wider[n, a, p, 0] / (wider[n, a, 0, 0] + 0.5))
        state.write((n, a, p), (n, a + 1, p), ahead[n, a, p] + gain[n, a, p] * (seen[n, a + 1] - ahead[n, a, 0]))
        spread.write((n, a, p, q), (n, a + 1, p, q), wider[n, a, p, q] - gain[n, a, p] * wider[n, a, 0, q])
    return state, spread


def _kalman(seen, move):
    states, spreads = [], []
    for track in seen:
        state, spread = [numpy.full(len(move), track[0])], [numpy.eye(len(move))]
        for now in track[1:]:
            ahead = move @ state[-1] / 4
            wider = move @ spread[-1] @ move.T / 16 + 0.1 * numpy.eye(len(move))
            gain = wider[:, 0] / (wider[0, 0] + 0.5)
            state.append(ahead + gain * (now - ahead[0]))
            spread.append(wider - gain[:, None] * wider[0])
        states.append(numpy.stack(state)), spreads.append(numpy.stack(spread))
    return numpy.stack(states), numpy.stack(spreads)


@nestor.nest
def turning(x: f32[times, width, 2], pole: f32[width, 2]):
    """Complex states as pairs: a choice of what the loop itself writes."""
    (part,) = indices(part=2)
    state = define("state", (t, s, part), x[t, s, part], where=t == 0)
    other = state[a, s, 1 - part]
    turned = nestor.select(part == 0, -pole[s, 1] * other, pole[s, 1] * other)
    return state.write((a, s, part), (a + 1, s, part), (pole[s, 0] * state[a, s, part] + turned) / 2 + x[a + 1, s, part])


def _turning(x, pole):
    pole = pole[..., 0] + 1j * pole[..., 1]
    x = x[..., 0] + 1j * x[..., 1]
    state = [x[0]]
    for now in x[1:]:
        state.append(pole * state[-1] / 2 + now)
    found = numpy.stack(state)
    return (numpy.stack((found.real, found.imag), -1),)


@nestor.nest
def sandpile(x: f32[width]):
    """Neighbours in place, with edges that have none; the choice is the whole value."""
    row = define("row", s, x[s])
    after = nestor.select(s < width - 1, row[s + 1] / 4, 0.5)
    value = nestor.select(s >= 1, (row[s - 1] + row[s]) / 2 + after, row[s] / 2)
    return row.write((t, s), s, value)


def _sandpile(x):
    row = x.copy()
    for _ in range(10):
        for place in range(len(row)):
            after = row[place + 1] / 4 if place + 1 < len(row) else 0.5
            row[place] = (row[place] + row[place - 1]) / 2 + after if place else row[place] / 2
    return (row,)


@nestor.nest
def kaczmarz(matrix: f32[width, width], right: f32[width]):
    """A row at a time: what is left of it is known before the vector moves, in place."""
    x = define("x", s, 0.0)
    with nestor.steps(j):
        length = nestor.sum(matrix[j, l] * matrix[j, l], over=l)
        left = define("left", j, (right[j] - nestor.sum(matrix[j, l] * x[l], over=l)) / (length + 1))
        x.write((j, s), s, x[s] + left[j] * matrix[j, s])
    return x


def _kaczmarz(matrix, right):
    x = numpy.zeros(len(right))
    for row, value in zip(matrix, right):
        x = x + (value - row @ x) / (row @ row + 1) * row
    return (x,)


@nestor.nest
def attention_memory(query: f32[times, width], key: f32[times, width]):
    """Softmax over earlier results, which grow by one a step: reductions of several depths, and one of nothing."""
    out, (u, c) = Tensor("out", f32, (times, width)), indices(u=times, c=width)
    score = nestor.sum(query[t, c] * out[u, c], over=c) / 16
    most = nestor.maximum(nestor.max(score, over=u, where=u < t), 0.0)
    weight = nestor.exp(score - most)
    total = nestor.sum(weight, over=u, where=u < t) + 1
    return out.write((t, s), (t, s), key[t, s] + nestor.sum(weight * out[u, s], over=u, where=u < t) / total)


def _attention_memory(query, key):
    out = numpy.zeros(key.shape)
    for now in range(len(key)):
        score = out[:now] @ query[now] / 16
        weight = numpy.exp(score - max([0.0, *score]))
        out[now] = key[now] + weight @ out[:now] / (weight.sum() + 1)
    return (out,)


@nestor.nest
def triangle(x: f32[times, width], weight: f32[width, width]):
    """Conditions that tie a time to a state, and one sum under two of them."""
    state = Tensor("state", f32, (times, width))
    most = nestor.max(state[t - 1, l], over=l)  # there is none at t = 0, where no s < t
    last = nestor.sum(state[t - 1, j] * weight[j, j] * most, over=j)
    early = nestor.sum(state[t - 1, j] * weight[s, j], over=j)
    choice = nestor.select(t >= 3, early, nestor.select(t >= 1, 2 * early, 1.0))
    return state.write((t, s), (t, s), nestor.tanh(x[t, s] + (nestor.select(s < t, last, 0.25) + choice) / 16))


def _triangle(x, weight):
    state = []
    for now, row in enumerate(x):
        last = state[-1] @ numpy.diag(weight) * state[-1].max() if now else 0
        early = weight @ state[-1] if now >= 3 else 2 * weight @ state[-1] if now else 1
        state.append(numpy.tanh(row + (numpy.where(numpy.arange(len(row)) < now, last, 0.25) + early) / 16))
    return (numpy.stack(state),)


@nestor.nest
def ladders(x: f32[times, width], weight: f32[width, width]):
    """Sums of sums over other indices, whose stages join."""
    state = define("state", (t, s), x[t, s], where=t == 0)
    up = nestor.sum(state[a, j] * weight[s, j], over=j) / 8
    most = nestor.max(state[a, l] * weight[s, l], over=l)
    value = nestor.sum(nestor.exp(state[a, j] - up), over=j) + nestor.sum(nestor.tanh(state[a, j] * most), over=j)
    return state.write((a, s), (a + 1, s), nestor.tanh(value / 16 + x[a + 1, s]))


def _ladders(x, weight):
    state = [x[0]]
    for now in x[1:]:
        last = state[-1]
        most, up = (last * weight).max(1), weight @ last / 8
        value = numpy.exp(last - up[:, None]).sum(1) + numpy.tanh(last * most[:, None]).sum(1)
        state.append(numpy.tanh(value / 16 + now))
    return (numpy.stack(state),)


def _normal(*shape):
    return lambda random: random.standard_normal(shape).astype("float32")


def _case(nest, reference, *makes, **sizes):
    names = {size.name for size in nest.sizes}
    known = {name: value for name, value in ({"times": 10, "width": 7} | sizes).items() if name in names}
    return (nest, known, lambda random: tuple(make(random) for make in makes),
            lambda *tensors: reference(*(tensor.astype("float64") for tensor in tensors)))


CASES = {
    "rnn": _case(rnn, _rnn, _normal(10, 7), _normal(7, 7)),
    "rnn_one_step": _case(rnn, _rnn, _normal(1, 7), _normal(7, 7), times=1),
    "rnn_one_state": _case(rnn, _rnn, _normal(10, 1), _normal(1, 1), width=1),
    "rnn_from_nothing": _case(rnn_from_nothing, _rnn_from_nothing, _normal(10, 7), _normal(7, 7)),
    "hmm_forward": _case(hmm_forward, _hmm_forward, _normal(10, 7), _normal(7, 7)),
    "viterbi": _case(viterbi, _viterbi, _normal(10, 7), _normal(7, 7)),
    "lstm": _case(lstm, _lstm, _normal(10, 4, 7), _normal(4, 7, 7)),
    "gru": _case(gru, _gru, _normal(10, 3, 7), _normal(3, 7, 7)),
    "power_iteration": _case(power_iteration, _power_iteration, _normal(7, 7), _normal(7)),
    "gauss_seidel": _case(gauss_seidel, _gauss_seidel, _normal(7, 7), _normal(7)),
    "forward_substitution": _case(forward_substitution, _forward_substitution, _normal(7, 7), _normal(7)),
    "backward_substitution": _case(backward_substitution, _backward_substitution, _normal(7, 7), _normal(7)),
    "kalman": _case(kalman, _kalman, _normal(5, 10), _normal(4, 4), tracks=5, size=4),
    "turning": _case(turning, _turning, _normal(10, 7, 2), _normal(7, 2)),
    "sandpile": _case(sandpile, _sandpile, _normal(7)),
    "kaczmarz": _case(kaczmarz, _kaczmarz, _normal(7, 7), _normal(7)),
    "triangle": _case(triangle, _triangle, _normal(10, 7), _normal(7, 7)),
    "ladders": _case(ladders, _ladders, _normal(10, 7), _normal(7, 7)),
    "attention_memory": _case(attention_memory, _attention_memory, _normal(10, 7), _normal(10, 7)),
}
