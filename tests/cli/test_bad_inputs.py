"""Sixty wrong inputs: each is refused within seconds by a sentence, and leaves nothing behind."""

import time

import pytest

import shell

MOST_S = 5.0
"""Seconds of CPU time that a refusal may take."""


def settings(*words):
    return ["run", "--out", "r", *(part for word in words for part in ("--set", word))]


BAD = {
    "no equals sign": (settings("slots"), "a setting looks like"),
    "empty key": (settings("=3"), "a setting looks like"),
    "unknown key": (settings("slotz=3"), "did you mean 'slots'"),
    "zero slots": (settings("slots=0"), "slots"),
    "negative nodes": (settings("nodes=-3"), "nodes"),
    "a word for a number": (settings("nodes=five"), "nodes"),
    "half a node": (settings("nodes=2.5"), "nodes"),
    "no seeds": (settings("seeds=[]"), "seeds"),
    "a seed twice": (settings("seeds=[1,1]"), "seeds must differ"),
    "a negative seed": (settings("seeds=[-1]"), "a seed must lie in"),
    "a seed beyond 32 bits": (settings("seeds=[4294967296]"), "a seed must lie in"),
    "a slot of no time": (settings("slot_s=0"), "slot_s"),
    "an endless slot": (settings("slot_s=inf"), "slot_s"),
    "record never": (settings("record_every=0"), "record_every"),
    "an empty batch": (settings("batch=0"), "batch"),
    "negative penalty": (settings("l2=-1"), "l2"),
    "unknown precision": (settings("precision=float16"), "precision"),
    "unknown objective": (settings("objective=mean"), "objective"),
    "unknown model": (settings("model.name=resnet"), "has no 'resnet'; known:"),
    "unknown data": (settings("data.name=imagenet"), "has no 'imagenet'; known:"),
    "unknown partition": (settings("partition.name=random"), "has no 'random'; known:"),
    "unknown network": (settings("network.name=wifi"), "has no 'wifi'; known:"),
    "unknown algorithm": (settings("algorithm.0.name=sgd"), "did you mean 'dpsgd'"),
    "a tenth algorithm": (settings("algorithm.9.step=1"), "has 3 entries"),
    "algorithm without a number": (settings("algorithm.step=1"), "algorithm.0.step"),
    "a step that is no number": (settings("algorithm.0.step=nan"), "step"),
    "an endless step": (settings("algorithm.0.step=inf"), "step"),
    "no local steps": (settings("algorithm.1.local_steps=0"), "local_steps"),
    "two labels alike": (settings("algorithm.0.label=FedAvg"), "too alike"),
    "a label of nothing": (settings('algorithm.0.label=" "'), "label"),
    "a slash in the name": (settings("name=a/b"), "name"),
    "transfers of no time": (settings("network.gamma=0"), "gamma"),
    "negative concentration": (
        settings("partition.name=dirichlet", "partition.concentration=-1"),
        "concentration",
    ),
    "all messages lost": (settings("faults.loss=1.0"), "loss"),
    "a node that is not there is away": (settings("faults.away=[[9,0,5]]"), "9"),
    "a fault that is unknown": (settings("faults.fire=1"), "fire"),
    "compute times of three nodes": (settings("compute_slots=[1,2,3]"), "compute_slots"),
    "a metric that is unknown": (settings("stop_at={acuracy=0.9}"), "did you mean"),
    "energy below nothing": (settings("energy.receive_w=-1"), "receive_w"),
    "too few samples": (settings("data.train_size=0"), "train_size"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_input_is_refused_in_a_sentence_and_leaves_nothing(name, tmp_path):
    arguments, complaint = BAD[name]
    began_s = time.process_time()
    done = shell.folkman(*arguments, cwd=tmp_path)

    assert done.returncode == 2, done.stdout
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())
    assert time.process_time() - began_s < MOST_S


OTHERS = {
    "plot of a folder that is none": (["plot", "nothing"], "expected a run or a sweep folder"),
    "a figure of an unknown kind": (["plot", ".", "--kind", "pie"], "there is no figure"),
    "a report into nowhere": (["report", ".", "--out", "none/r.html"], "make it first"),
    "compare nothing": (["compare", "nothing"], "nothing"),
    "compare at no point": (["compare", ".", "--at", "seconds"], "--at looks like"),
    "a tracker that is unknown": (["run", "--track", "excel"], "excel"),
    "a sweep over seeds": (["sweep", "--grid", "seeds=1,2"], "seeds"),
    "a sweep over nothing": (["sweep", "--grid", "slots="], "slots"),
    "workers of no memory": (["sweep", "--grid", "slots=5", "--memory", "lots"], "--memory looks"),
    "a sweep on an unknown engine": (["sweep", "--grid", "slots=5", "--engine", "gpu"], "gpu"),
    "a paper that is unknown": (["reproduce", "fig99"], "fig99"),
    "a citation of nobody": (["cite", "nobody"], "nobody"),
    "a page on an impossible port": (["dash", ".", "--port", "99999"], "expected a run"),
    "a page for everyone": (["dash", ".", "--host", "0.0.0.0"], "token"),  # noqa: S104
    "a short token": (["dash", ".", "--token", "abc"], "a token has at least"),
    "a cluster that is none": (["status", "nothing"], "expected a cluster"),
    "a node without a file": (["node", "--config", "none.toml"], "none.toml"),
    "an unknown transport": (["up", "--transport", "pigeon"], "pigeon"),
    "tuning of an unknown option": (["tune", "--over", "magic=1,2"], "magic"),
    "tuning on the judged seeds": (["tune", "--seeds", "0,1"], "seeds"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_commands_refuse_alike(name, tmp_path):
    arguments, complaint = OTHERS[name]
    began_s = time.process_time()
    done = shell.folkman(*arguments, cwd=tmp_path)

    assert done.returncode == 2, (done.stdout, done.stderr)
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert time.process_time() - began_s < MOST_S
