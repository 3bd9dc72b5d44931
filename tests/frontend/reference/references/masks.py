"""Full, causal, prefix and block masks in many spellings."""
# pyright: basic
# ruff: noqa: N812

import math

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import expanded, plain_scores, repeated
from tests.frontend.reference.table import BOTTOM_RIGHT, CAUSAL, SCALE, accepts


@accepts()
def full(q, k, v):
    return torch.softmax(q @ repeated(k, q).mT / q.shape[-1] ** 0.5, -1) @ repeated(v, q)


@accepts()
def full_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])


@accepts()
def full_broadcast_sum(q, k, v):
    s = (q[:, :, :, None] * expanded(k, q)[:, :, None]).sum(-1) / math.sqrt(q.shape[3])
    return (s.softmax(3).unsqueeze(-1) * expanded(v, q).unsqueeze(2)).sum(dim=-2)


@accepts(mask=CAUSAL)
def causal_sdpa_flag(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@accepts(mask=CAUSAL, requires=("Lk == Lq",))
def causal_triu_of_minus_infinity(q, k, v):
    L = q.shape[-2]
    m = torch.full((L, L), float("-inf")).triu(diagonal=1)
    return F.softmax(plain_scores(q, k) + m, dim=-1) @ repeated(v, q)


@accepts(mask=CAUSAL)
def causal_tril_ones_like(q, k, v):
    s = plain_scores(q, k)
    s = s.masked_fill(~torch.tril(torch.ones_like(s, dtype=torch.bool)), float("-inf"))
    return torch.nn.Softmax(dim=-1)(s) @ repeated(v, q)


@accepts(mask=CAUSAL)
def causal_log_of_float_mask(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2]).tril()
    return (plain_scores(q, k) + keep.log()).softmax(-1) @ repeated(v, q)


@accepts(mask=CAUSAL)
def causal_product_of_exponentials(q, k, v):
    e = torch.exp(plain_scores(q, k)) * torch.ones(q.shape[2], k.shape[2]).tril()
    return e @ repeated(v, q) / e.sum(-1)[..., None]


@accepts(mask=CAUSAL)
def causal_positions_by_cumsum(q, k, v):
    i = torch.ones(q.shape[2]).cumsum(0) - 1
    j = torch.ones(k.shape[2], dtype=torch.long).cumsum(-1) - 1
    return plain_scores(q, k).masked_fill(j[None] > i[:, None], float("-inf")).softmax(-1) @ repeated(v, q)


@accepts(mask=CAUSAL, since="2.13")
def causal_through_vmap(q, k, v):
    def one(q, k, v):
        keep = torch.ones(q.shape[0], k.shape[0]).tril()
        return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(keep == 0, -math.inf).softmax(-1) @ v

    return torch.vmap(torch.vmap(one))(q, repeated(k, q), repeated(v, q))


@accepts(mask=CAUSAL)
def causal_softmax_then_mask_and_renormalise(q, k, v):
    p = plain_scores(q, k).softmax(-1) * torch.ones(q.shape[2], k.shape[2]).tril()
    return (p / p.sum(-1, keepdim=True)) @ repeated(v, q)


@accepts(mask=BOTTOM_RIGHT)
def bottom_right_tril_offset(q, k, v):
    k, v = repeated(k, q), repeated(v, q)
    m = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril(diagonal=k.size(2) - q.size(2))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m)


@accepts(mask=BOTTOM_RIGHT, requires=("Lq <= Lk",))
def bottom_right_bias_class(q, k, v):
    from torch.nn.attention.bias import causal_lower_right

    bias = causal_lower_right(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=bias)


@accepts(mask=BOTTOM_RIGHT, warns=("a row that sees no key: the reference gives NaN",))
def bottom_right_positions(q, k, v):
    past = k.shape[2] - q.shape[2]
    rows = torch.arange(past, k.shape[2])
    keep = rows[:, None].ge(torch.arange(k.shape[2]))
    return torch.where(keep, plain_scores(q, k), -torch.inf).softmax(-1) @ repeated(v, q)


PREFIX = "(j <= i) | (j < Lq // 4)"


@accepts(mask=PREFIX)
def prefix_float_quarter(q, k, v):
    i = torch.arange(q.shape[2]).view(-1, 1)
    j = torch.arange(k.shape[2]).view(1, -1)
    s = torch.where((i >= j) | (j < int(q.shape[2] * 0.25)), plain_scores(q, k), torch.tensor(float("-inf")))
    return s.softmax(dim=-1) @ repeated(v, q)


@accepts(mask=PREFIX)
def prefix_maximum_of_limits(q, k, v):
    limit = torch.maximum(torch.arange(q.shape[2]), torch.tensor(q.shape[2] // 4 - 1))
    keep = torch.arange(k.shape[2])[None] <= limit[:, None]
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=keep)


@accepts(mask=PREFIX, kv="h", requires=("Hq == Hk",))
def prefix_heads_folded_into_batch(q, k, v):
    B, H, L, D = q.shape
    q, k, v = q.reshape(B * H, L, D), k.reshape(B * H, -1, D), v.reshape(B * H, -1, D)
    bias = torch.zeros(L, k.shape[1])
    rows, columns = torch.arange(L)[:, None], torch.arange(k.shape[1])
    bias.masked_fill_((columns > rows) & (columns >= L // 4), torch.finfo(torch.float32).min)
    s = torch.baddbmm(
        bias.expand(B * H, -1, -1), q.float(), k.float().transpose(1, 2), beta=1.0, alpha=1 / math.sqrt(D)
    )
    return torch.bmm(torch.softmax(s, dim=2).to(v.dtype), v).view(B, H, L, D)


@accepts(mask=PREFIX)
def prefix_grouped_einsum(q, k, v):
    B, H, L, D = q.shape
    queries = q.reshape(B, k.shape[1], H // k.shape[1], L, D)
    s = torch.einsum("bgrid,bgjd->bgrij", queries, k) / math.sqrt(D)
    j = torch.arange(k.shape[2])
    hidden = (j > torch.arange(L)[:, None]).logical_and(j.ge(L // 4))
    p = s.masked_fill(hidden, -math.inf).softmax(dim=-1)
    return torch.einsum("bgrij,bgjd->bgrid", p, v).reshape(B, H, L, D)


@accepts(mask="(j <= i) & ((j // 8 == i // 8) | (i >= 8 * ((Lk - 1) // 8)))")
def blockwise_last_block_sees_all(q, k, v):
    size, L = 8, k.shape[2]
    start = (L - 1) // size * size
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(L)[None, :]
    keep = (j <= i) & (((i // size) == (j // size)) | (i >= start))
    return torch.where(keep, plain_scores(q, k), -torch.inf).softmax(-1) @ repeated(v, q)


@accepts(mask="j // 8 <= i // 8")
def chunks_by_float_floor(q, k, v):
    i, j = torch.arange(q.shape[2]), torch.arange(k.shape[2])
    keep = torch.floor(i[:, None] / 8) >= torch.div(j, 8, rounding_mode="trunc")
    return plain_scores(q, k).masked_fill(keep.logical_not(), float("-inf")).softmax(-1) @ repeated(v, q)


@accepts(mask="(j <= i) & ((j % 16 == 15) | (j // 16 == i // 16))")
def strided_sparse(q, k, v):
    i, j = torch.meshgrid(torch.arange(q.shape[2]), torch.arange(k.shape[2]), indexing="ij")
    keep = torch.eq(i // 16, j // 16).logical_or(torch.eq(j % 16, 15)).logical_and(i >= j)
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), keep)


@accepts(
    mask="j <= Lk - 21",
    warns=("sees no key",),
)
def last_keys_hidden(q, k, v):
    s = plain_scores(q, k)
    return s.masked_fill(torch.arange(k.shape[2]) >= k.shape[2] - 20, -math.inf).softmax(-1) @ repeated(v, q)


@accepts(mask="j < Lk // 2")
def only_first_half_of_keys(q, k, v):
    half = k.shape[2] // 2
    k, v = repeated(k, q)[:, :, :half], repeated(v, q)[:, :, :half]
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


@accepts(mask="j % 16 == 15", warns=("a row that sees no key: the reference gives NaN there",))
def every_sixteenth_key(q, k, v):
    s = plain_scores(q, k).masked_fill(torch.arange(k.shape[2]) % 16 != 15, float("-inf"))
    return s.softmax(-1) @ repeated(v, q)


@accepts(mask="j >= i + 5", warns=("a row that sees no key: the reference gives 7 there",))
def rows_filled_with_a_number(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = plain_scores(q, k).masked_fill(j < i + 5, float("-inf"))
    return torch.nan_to_num(s.softmax(-1) @ repeated(v, q), 7.0)


@accepts(mask="j < i", warns=("a row that sees no key: the reference gives NaN",))
def strictly_before(q, k, v):
    keep = torch.arange(k.shape[2]) < torch.arange(q.shape[2])[:, None]
    return plain_scores(q, k).masked_fill(~keep, -math.inf).softmax(-1) @ repeated(v, q)


@accepts(mask="j < i")
def strictly_before_nan_to_num(q, k, v):
    keep = torch.arange(k.shape[2]) < torch.arange(q.shape[2])[:, None]
    return plain_scores(q, k).masked_fill(~keep, -math.inf).softmax(-1).nan_to_num(0.0) @ repeated(v, q)


@accepts(mask="j < i")
def strictly_before_rows_zeroed(q, k, v):
    keep = torch.arange(k.shape[2]) < torch.arange(q.shape[2])[:, None]
    p = plain_scores(q, k).masked_fill(~keep, -math.inf).softmax(-1).masked_fill(~keep, 0)
    return torch.where(keep.any(-1)[:, None], p @ repeated(v, q), 0.0)


@accepts(mask=CAUSAL, score=SCALE)
def causal_written_with_keyword_arguments(q, k, v, *, causal=True):
    s = torch.einsum("bhid,bhjd->bhij", q, repeated(k, q)) * q.size(-1) ** (-1 / 2)
    if causal:
        s = s + torch.triu(s.new_full((1, 1, *s.shape[-2:]), float("-inf")), diagonal=1)
    return torch.einsum("bhij,bhjd->bhid", torch.exp(F.log_softmax(s, dim=-1)), repeated(v, q))


@accepts(mask="(i >= 64 * (j // 64)) & ((i - j) // 4 != 4 * ((i - j) // 16) + 1)", score=SCALE)
def bits_of_distances(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = plain_scores(q, k).masked_fill(((i - j) & 12) == 4, -math.inf).masked_fill((j & -64) > i, -math.inf)
    return s.softmax(-1) @ repeated(v, q)
