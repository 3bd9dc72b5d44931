"""References that must be refused, each with the reason and the line that it must point at."""
# pyright: basic
# ruff: noqa: N812

import math
import threading

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import plain_scores, repeated
from tests.frontend.reference.table import refuses

CONSTANT = torch.ones(1)

# ---- normalizers that need more than one pass, or other rows -----------------------------------------------------------


@refuses("CU476", "`topk`", "s.topk")
def top_k(q, k, v):
    s = plain_scores(q, k)
    least = s.topk(4, -1).values[..., -1:]
    return s.masked_fill(s < least, -math.inf).softmax(-1) @ repeated(v, q)


@refuses("CU476", "`sort`", ".sort(-1)")
def sorted_scores(q, k, v):
    return plain_scores(q, k).sort(-1).values.softmax(-1) @ repeated(v, q)


@refuses("CU476", "`cumsum`", ".cumsum(-1)")
def stick_breaking(q, k, v):
    z = plain_scores(q, k).sigmoid()
    return (z * (1 - z).log().cumsum(-1).exp()) @ repeated(v, q)


@refuses("CU476", "`native_layer_norm` on values computed from q alone", "F.layer_norm")
def normalised_queries(q, k, v):
    q = F.layer_norm(q.float(), q.shape[-1:]).to(q.dtype)
    return plain_scores(q, k).softmax(-1) @ repeated(v, q)


@refuses("CU483", "over query rows", "softmax(-2)")
def softmax_over_queries(q, k, v):
    return plain_scores(q, k).softmax(-2) @ repeated(v, q)


@refuses("CU483", "over heads", "softmax(1)")
def softmax_over_heads(q, k, v):
    return plain_scores(q, k).softmax(1) @ repeated(v, q)


@refuses("CU483", "over the batch", "softmax(0)")
def softmax_over_batch(q, k, v):
    return plain_scores(q, k).softmax(0) @ repeated(v, q)


@refuses("CU483", "over query rows", "sum(dim=-2")
def sinkhorn_step(q, k, v):
    p = plain_scores(q, k).exp()
    p = p / p.sum(dim=-2, keepdim=True)
    return (p / p.sum(dim=-1, keepdim=True)) @ repeated(v, q)


@refuses("CU485", "second pass", "softmax(-1)")
def two_softmaxes(q, k, v):
    return plain_scores(q, k).softmax(-1).mul(2).softmax(-1) @ repeated(v, q)


@refuses("CU485", "second pass", "torch.relu")
def threshold_from_the_row(q, k, v):
    s = plain_scores(q, k)
    return torch.relu(s - s.mean(-1, keepdim=True)) @ repeated(v, q)


@refuses("CU485", "second pass", "p * p")
def squared_weights_renormalised(q, k, v):
    p = plain_scores(q, k).softmax(-1)
    p = p * p + 0.1 * p
    return (p / p.sum(-1, keepdim=True)) @ repeated(v, q)


@refuses("CU486", "the mask depends on the scores", "s == s.amax")
def argmax_weights(q, k, v):
    s = plain_scores(q, k)
    return (s == s.amax(-1, keepdim=True)).to(v.dtype) @ repeated(v, q)


@refuses("CU486", "the mask depends on the scores", "s < 0.5")
def mask_from_scores(q, k, v):
    s = plain_scores(q, k)
    return s.masked_fill(s < 0.5, -math.inf).softmax(-1) @ repeated(v, q)


@refuses("CU486", "do not depend on q and k", "repeated(v, q)")
def mean_of_values(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=v.dtype).tril().expand(q.shape[0], q.shape[1], -1, -1)
    return (keep / keep.sum(-1, keepdim=True)) @ repeated(v, q)


# ---- structure ---------------------------------------------------------------------------------------------------------


@refuses("CU480", "different sums over v", "a.softmax")
def differential_attention(q, k, v):
    k, v = repeated(k, q), repeated(v, q)
    a = q @ k.mT
    return a.softmax(-1) @ v - 0.5 * ((a * 2).softmax(-1) @ v)


@refuses("CU484", "over D // 2 of D columns", "[..., :half]")
def product_of_half_heads(q, k, v):
    k, v, half = repeated(k, q), repeated(v, q), q.shape[-1] // 2
    a = q[..., :half] @ k[..., :half].mT
    return a.softmax(-1) @ v


@refuses("CU483", "over heads", "torch.einsum", lambda shape, device: {"w": torch.randn(shape.Hq, shape.Hq)})
def talking_heads(q, k, v, w):
    s = torch.einsum("bhij,hg->bgij", plain_scores(q, k), w.to(q.dtype))
    return s.softmax(-1) @ repeated(v, q)


@refuses("CU480", "is reduced again", "@ v @ w", lambda shape, device: {"w": torch.randn(shape.D, shape.D)})
def output_projection(q, k, v, w):
    v = repeated(v, q)
    w = w.to(v.dtype)
    return plain_scores(q, k).softmax(-1) @ v @ w


@refuses("CU480", "is reduced again", "o.norm")
def output_normalised(q, k, v):
    o = plain_scores(q, k).softmax(-1) @ repeated(v, q)
    return o / o.norm(dim=-1, keepdim=True)


@refuses("CU480", "is reduced again", "@ (repeated(k")
def linear_attention(q, k, v):
    return q.relu() @ (repeated(k, q).relu().mT @ repeated(v, q))


@refuses("CU480", "does not come from a sum", "q * 2")
def no_attention(q, k, v):
    return q * 2


@refuses("CU482", "q is used outside", "+ q")
def residual(q, k, v):
    return plain_scores(q, k).softmax(-1) @ repeated(v, q) + q


@refuses("CU482", "varies along the head dimension", "torch.arange(q.shape[-1])")
def output_scaled_per_column(q, k, v):
    return (plain_scores(q, k).softmax(-1) @ repeated(v, q)) * torch.arange(q.shape[-1])


@refuses("CU484", "changed per column", "@ repeated(k, q).mT", lambda shape, device: {"w": torch.randn(shape.D)})
def weights_per_column(q, k, v, w):
    return ((q * w.to(q.dtype)) @ repeated(k, q).mT).softmax(-1) @ repeated(v, q)


@refuses("CU484", "changed per column", "r @")
def rotary(q, k, v):
    angle = torch.arange(q.shape[2])[:, None] * torch.ones(q.shape[3] // 2, dtype=q.dtype)
    half = q.shape[3] // 2
    r = torch.cat([q[..., :half] * angle.cos(), q[..., half:] * angle.sin()], -1)
    return (r @ repeated(k, q).mT).softmax(-1) @ repeated(v, q)


@refuses("CU484", "k is read at", ".roll(1, 2)")
def keys_shifted(q, k, v):
    return (q @ repeated(k, q).roll(1, 2).mT).softmax(-1) @ repeated(v, q)


@refuses("CU484", "k is read at", ".flip(0)")
def batches_mixed(q, k, v):
    return (q @ repeated(k, q).flip(0).mT).softmax(-1) @ repeated(v, q)


@refuses("CU484", "q is read at", "q.flip(2)")
def queries_reversed(q, k, v):
    return (q.flip(2) @ repeated(k, q).mT).softmax(-1) @ repeated(v, q)


@refuses("CU484", "k is read at head", "repeat_interleave")
def heads_crossed(q, k, v):
    return (q @ repeated(k, q).mT).softmax(-1) @ v.repeat(1, q.shape[1] // k.shape[1], 1, 1)


@refuses("CU481", "v is read at", "v.flip(2)")
def values_reversed(q, k, v):
    k, v = repeated(k, q), repeated(v.flip(2), q)
    return (q @ k.mT).softmax(-1) @ v


# ---- data-dependent or random ------------------------------------------------------------------------------------------

DOCUMENTS = {"extra": lambda shape, device: {"doc": torch.arange(shape.Lk) // 8}}


@refuses("CU477", "a number read from a tensor", "doc[0].item()", **DOCUMENTS)
def number_of_a_tensor(q, k, v, doc):
    s = plain_scores(q, k)
    if doc[0].item() == doc[1].item():
        s = s * 2
    return s.softmax(-1) @ repeated(v, q)


@refuses("CU477", "a branch on a tensor", "if s.max() > 3")
def branch_on_scores(q, k, v):
    s = plain_scores(q, k)
    if s.max() > 3:
        s = s / 2
    return s.softmax(-1) @ repeated(v, q)


@refuses("CU476", "`nonzero`", "torch.nonzero")
def selected_keys(q, k, v):
    s = plain_scores(q, k)
    kept = torch.nonzero(s.sum(dim=(0, 1, 2)) > 0).squeeze(-1)
    return s[..., kept].softmax(-1) @ repeated(v, q)[:, :, kept]


@refuses("CU478", "dropout", "F.dropout")
def dropout(q, k, v):
    return F.dropout(plain_scores(q, k).softmax(-1), 0.1, training=True) @ repeated(v, q)


@refuses("CU478", "dropout", "scaled_dot_product_attention")
def dropout_inside_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, enable_gqa=True)


@refuses("CU478", "random operation", "torch.rand(")
def random_mask(q, k, v):
    hidden = torch.rand(q.shape[2], k.shape[2]) < 0.1
    return plain_scores(q, k).masked_fill(hidden, -math.inf).softmax(-1) @ repeated(v, q)


@refuses("CU480", "v is summed over Hk, not summed over its keys", "@ v")
def heads_after_rows(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = k.repeat_interleave(q.shape[1] // k.shape[1], 1), v.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2)


@refuses("CU476", "`view` on values computed", "view(torch.int32)")
def bits_of_scores(q, k, v):
    s = (q.float() @ repeated(k, q).float().mT).view(torch.int32) & 0x7FFFFFFF
    return s.view(torch.float32).softmax(-1).to(v.dtype) @ repeated(v, q)


@refuses("CU476", "a tensor is read that no recorded operation made", "found[0]")
def another_thread(q, k, v):
    s, found = plain_scores(q, k), []
    thread = threading.Thread(target=lambda: found.append(s * 2))
    thread.start()
    thread.join()
    return found[0].softmax(-1) @ repeated(v, q)


# ---- faults of the reference -------------------------------------------------------------------------------------------


@refuses("CU474", "the reference fails: RuntimeError", "q @ k")
def shapes_do_not_fit(q, k, v):
    return (q @ k).softmax(-1) @ v


@refuses("CU474", "ZeroDivisionError", "1 / 0")
def raises(q, k, v):
    return plain_scores(q, k) * (1 / 0)


@refuses("CU475", "[B, Lq, Hq, D], expected [B, Hq, Lq, D]", "transpose(1, 2)")
def wrong_layout(q, k, v):
    return (plain_scores(q, k).softmax(-1) @ repeated(v, q)).transpose(1, 2)


@refuses("CU475", "[B, Lq, Hk, D], expected [B, Hq, Lq, D]", "transpose(1, 2)")
def wrong_layout_of_equal_heads(q, k, v):
    return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2)


@refuses("CU475", "returns dict, not a tensor", "def returns_a_dict")
def returns_a_dict(q, k, v):
    return {"out": plain_scores(q, k).softmax(-1) @ repeated(v, q)}


@refuses("CU475", "returns int32, which no kernel writes", ".int()")
def returns_integers(q, k, v):
    return (plain_scores(q, k).softmax(-1) @ repeated(v, q)).int()


@refuses("CU476", "too large for a float", "def scaled_past_float")
def scaled_past_float(q, k, v):
    return (plain_scores(q, k) * 1e300 * 1e300).softmax(-1) @ repeated(v, q)


@refuses("CU476", "rounded to float8_e4m3fn", ".to(torch.float8_e4m3fn)")
def weights_of_eight_bits(q, k, v):
    return plain_scores(q, k).softmax(-1).to(torch.float8_e4m3fn).to(v.dtype) @ repeated(v, q)


@refuses("CU477", "an array made of a tensor", "CONSTANT.numpy()")
def number_of_an_array_of_a_tensor(q, k, v):
    return (plain_scores(q, k) + float(CONSTANT.numpy()[0])).softmax(-1) @ repeated(v, q)


@refuses("CU477", "a shape depends on the data", "unique", lambda shape, device: {"ids": torch.arange(shape.Lk)})
def first_of_unique(q, k, v, ids):
    return plain_scores(q, k).masked_fill(ids == torch.unique(ids)[0], -math.inf).softmax(-1) @ repeated(v, q)


@refuses("CU475", "returns nothing, not a tensor", "def returns_nothing")
def returns_nothing(q, k, v):
    return ()


@refuses("CU475", "returns 3 tensors", "def returns_three")
def returns_three(q, k, v):
    s = plain_scores(q, k)
    return s.softmax(-1) @ repeated(v, q), s.logsumexp(-1), s.amax(-1)


@refuses("CU475", "the second output has shape", "logsumexp")
def lse_of_the_wrong_shape(q, k, v):
    s = plain_scores(q, k)
    return s.softmax(-1) @ repeated(v, q), s.logsumexp(-1, keepdim=True)


@refuses("CU487", "the reference gives NaN", "def zero_times_infinity")
def zero_times_infinity(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=q.dtype).tril()
    return (plain_scores(q, k) + (1 - keep) * -math.inf).softmax(-1) @ repeated(v, q)


@refuses("CU486", "do not depend on q and k", "torch.tanh")
def cap_of_zero(q, k, v):
    cap = 0.0
    return (cap * torch.tanh(plain_scores(q, k) / torch.tensor(cap))).softmax(-1) @ repeated(v, q)
