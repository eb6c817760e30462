"""The ClientApp of `against_flower.py`: importable, because Flower's workers import it."""

import functools

import numpy as np
import protocol
import torch
import torch_models
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@functools.lru_cache(1)
def held(folder):
    """Read the samples of all nodes once a worker."""
    arrays = protocol.load_arrays(folder)
    x, y = (torch.from_numpy(part) for part in arrays.samples())
    form = protocol.form(protocol.task(folder))
    return x, y.long(), arrays, form, np.zeros_like(arrays.initial)


@app.train()
def train(message, context):
    """Take one step from the server's model."""
    config = message.content["config"]
    torch.set_num_threads(1)  # a worker a core
    x, y, arrays, form, blank = held(config["folder"])
    i = int(context.node_config["partition-id"])
    net = torch_models.make(form, blank)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=config["step"])
    rows = arrays.rows(int(config["server-round"]) - 1, i)
    rows = rows if isinstance(rows, slice) else torch.from_numpy(rows).long()
    xs, ys = x[i, rows], y[i, rows]
    torch.nn.functional.cross_entropy(net(xs), ys).backward()
    optimizer.step()
    record = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord(
            {"num-examples": len(ys) if arrays.counts is None else int(arrays.counts[i])}
        ),
    }
    return Message(RecordDict(record), reply_to=message)
