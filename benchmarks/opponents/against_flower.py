"""Flower's simulation (Ray): ServerApp and ClientApp, FedAvg, all nodes in all rounds, one step.

One simulation lasts as long as the benchmark speaks with this process: the ServerApp starts the
strategy anew for every repetition, so that the start of Ray counts as start-up.
"""

import os
import sys
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0")
os.environ["PYTHONPATH"] = HERE + os.pathsep + os.environ.get("PYTHONPATH", "")

import flower_client
import protocol
import torch_models
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

app = ServerApp()


@app.main()
def main(grid, context):
    """Speak with the benchmark from inside the simulation."""
    protocol.serve(lambda: build(grid))


def build(grid):
    """Build the strategy's start; the clients hold the samples."""
    task, arrays = protocol.task(), protocol.load_arrays()
    form = protocol.form(task)
    first = torch_models.from_flat(form, arrays.initial)
    config = {"folder": str(protocol.folder()), "step": task["step"]}

    def learn(state, rounds):
        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=task["nodes"]
        )
        return strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(first),
            train_config=ConfigRecord(config),
            num_rounds=rounds,
        )

    return protocol.Learner(
        f"{version('flwr')}, ray {version('ray')}",
        lambda rounds: None,
        learn,
        lambda result: torch_models.to_flat(form, result.arrays.to_torch_state_dict()),
    )


if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0))
    run_simulation(
        app,
        flower_client.app,
        num_supernodes=protocol.task()["nodes"],
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False, "log_to_driver": False},
        },
    )
    sys.stdout.flush()
