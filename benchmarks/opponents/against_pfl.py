"""pfl-research: federated averaging in one process, all users in every cohort, one local step."""

import os
from importlib.metadata import version

import numpy as np
import protocol
import torch
import torch_models
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Net(torch.nn.Module):
    """A model with the loss that pfl asks for."""

    def __init__(self, form, initial):
        super().__init__()
        self.net = torch_models.make(form, initial)

    def loss(self, x, y, eval=False):  # noqa: A002 - pfl passes it by this name
        """Return the mean cross-entropy."""
        self.train(not eval)
        return torch.nn.functional.cross_entropy(
            self.net(torch.as_tensor(x)), torch.as_tensor(y).long()
        )

    def metrics(self, x, y, eval=False):  # noqa: A002 - pfl passes it by this name
        """Return nothing: nothing is evaluated while time is taken."""
        return {}


class Rounds(TrainingProcessCallback):
    """Counts the rounds, for the mini-batches."""

    done = 0

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Go on."""
        self.done = central_iteration + 1
        return False, Metrics()


def build():
    """Build the users; a repetition starts from a fresh model."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = arrays.samples()
    users, form = list(range(task["nodes"])), protocol.form(task)

    def begin(rounds):
        counted = Rounds()

        def user(i):
            rows = slice(None) if arrays.draws is None else arrays.draws[counted.done, i]
            return Dataset([x[i, rows], y[i, rows]])

        net = Net(form, arrays.initial)
        model = PyTorchModel(
            net,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
        )
        held = FederatedDataset(user, get_user_sampler("minimize_reuse", users))
        return net, model, SimulatedBackend(training_data=held, val_data=held), counted

    def learn(state, rounds):
        _, model, backend, counted = state
        shape = NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=task["nodes"],
            val_cohort_size=0,
        )
        training = NNTrainHyperParams(
            local_batch_size=task["batch"],
            local_num_epochs=None,
            local_num_steps=1,
            local_learning_rate=task["step"],
        )
        FederatedAveraging().run(
            shape,
            backend,
            model,
            training,
            NNEvalHyperParams(local_batch_size=None),
            [counted],
            send_metrics_to_platform=False,
        )
        return state

    def model(state):
        return np.asarray(torch_models.to_flat(form, state[0].net.state_dict()))

    return protocol.Learner(version("pfl"), begin, learn, model)


if __name__ == "__main__":
    protocol.serve(build)
