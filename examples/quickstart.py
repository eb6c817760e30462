"""Algorithm 1 against FedAvg on the embedded digits: from import to a figure."""

import folkman as fm

problem = fm.make_problem(fm.load("digits"), "softmax", 5)  # 5 nodes, evenly split
network = fm.pipelined(gamma=5)  # every transfer takes 5 slots
sharing = fm.simulate(problem, network, fm.async_sharing(step=2.0), slots=300, label="Algorithm 1")
fedavg = fm.simulate(
    problem, network, fm.fedavg(step=16.0, local_steps=5), slots=300, label="FedAvg"
)

for run in (sharing, fedavg):
    print(f"{run.label:<12} loss {run.last('train_loss'):.3f}")
fm.draw_curves([sharing, fedavg], x="seconds", y="train_loss").savefig("quickstart.png", dpi=150)
