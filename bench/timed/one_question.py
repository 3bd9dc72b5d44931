# One question of a quarter and four equal answers, no padding.
# ruff: noqa: F821 — this text follows that of an example


def extra_inputs(shape, device):
    position = torch.arange(shape.Lq, device=device)
    question = shape.Lq // 4
    answer = torch.where(position < question, 0, 1 + (position - question) * 4 // (shape.Lq - question))
    return {"answer": answer.expand(shape.B, -1), "sample": torch.zeros_like(answer).expand(shape.B, -1)}
