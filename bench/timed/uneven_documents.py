# Documents of the lengths that are timed, alike in every batch entry, stretched where L is not their sum.
# ruff: noqa: F821 — this text follows that of an example
LENGTHS = (234, 1577, 534, 1439, 874, 292, 262, 2980)
_extra_of_example = extra_inputs


def extra_inputs(shape, device):
    length = max(shape.Lq, shape.Lk)
    numbers = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS)).to(device)
    doc = numbers[torch.arange(length, device=device) * len(numbers) // length]
    return {**_extra_of_example(shape, device), "doc": doc.expand(shape.B, -1)}
