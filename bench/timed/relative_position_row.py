# One row of a value for every distance that occurs, and no clipping: table[i - j + L].
# ruff: noqa: F821 — this text follows that of an example


def extra_inputs(shape, device):
    return {"table": torch.sin(0.01 * torch.arange(shape.Lq + shape.Lk, device=device))}


def attention(q, k, v, table):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s + table[i - j + k.shape[2]]
    return torch.softmax(s, dim=-1).to(v.dtype) @ v
