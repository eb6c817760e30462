"""Wrong inputs, two hundred: a sentence refuses each within seconds, and nothing is left."""

import io
import time

import numpy as np
import pytest

import shell

MOST_S = 5.0
"""Seconds of CPU time that a refusal may take."""


def settings(*words):
    return ["run", "--out", "r", *(part for word in words for part in ("--set", word))]


def radio(*words):
    return settings("network.name=radio", *(f"network.{word}" for word in words))


def method(*words):
    return settings(*(f"algorithm.0.{word}" for word in words))


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

MORE = {
    "a billion nodes": (settings("nodes=1000000000"), "use fewer, or many cells"),
    "a trillion slots": (settings("slots=1000000000000"), "run fewer slots"),
    "more nodes than samples": (settings("nodes=2000"), "expected samples at every node"),
    "a batch beyond all samples": (settings("batch=100000"), "batch must be at most the 288"),
    "a negative batch": (settings("batch=-1"), "expected at least 1; got -1"),
    "transfers of two slots and a half": (settings("network.gamma=2.5"), "expected a whole number"),
    "copies from the future": (settings("network.name=constant", "network.delay=-1"), "delay must"),
    "a threshold in words": (radio("threshold_db=loud"), "expected a number; got 'loud'"),
    "a threshold that is no number": (radio("threshold_db=nan"), "threshold_db must be a number"),
    "no bandwidth": (radio("bandwidth_hz=0"), "bandwidth_hz must be positive"),
    "power that is no number": (radio("power_dbm=nan"), "power_dbm must be a finite number"),
    "an option of the radio, misspelt": (radio("bandwith_hz=1e6"), "did you mean 'bandwidth_hz'"),
    "an unknown schedule": (radio("schedule=fair"), "expected 'threshold' or 'index'; got 'fair'"),
    "sums for a median": (
        [*radio("schedule=index", "message=sum"), "--set", "algorithm.0.rule=median"],
        "use message = 'forward'",
    ),
    "no bits per parameter": (radio("bits_per_parameter=0"), "must be positive and finite"),
    "a step in words": (method("step=fast"), "expected a number; got 'fast'"),
    "a negative step": (method("step=-1"), "try 0.1"),
    "an unknown rule": (method("rule=average"), "expected 'mean', 'trimmed_mean', 'median'"),
    "an unknown own part": (
        method("own=mine"),
        "'algorithm.0.own' is not right: expected 'newest'",
    ),
    "an unknown scaling": (method("scaling=big"), "expected 'local', 'theorem' or 'figure'"),
    "memory below nothing": (method("own=measured", "memory=-3"), "at least 1, got -3"),
    "an unknown graph": (method("name=dpsgd", "topology=star-ish"), "did you mean 'star'"),
    "a graph that is not there": (method("name=dpsgd", "topology=none.csv"), "check the path"),
    "a graph without edges": (method("name=dpsgd", "topology=some.csv"), "has no edges"),
    "a graph of other nodes": (method("name=dpsgd", "topology=edges: 0-1"), "make them equal"),
    "own code that is not there": (method("name=mine.py:method"), "check the path"),
    "own code that lacks it": (method("name=own.py:method"), "none is known"),
    "own code that is no function": (method("name=own.py:x"), "expected a function"),
    "a module that is not there": (method("name=no.such.module:method"), "install it, or write"),
    "layers of no size": (settings("model.name=mlp", "model.hidden=0"), "expected a list, as [0"),
    "an option that a model lacks": (
        settings("model.name=softmax", "model.hidden=3"),
        "it has no options",
    ),
    "data without a path": (settings("data.name=npz"), "'data.path' is needed"),
    "data that are not there": (settings("data.name=npz", "data.path=no.npz"), "correct the path"),
    "data that are no archive": (
        settings("data.name=npz", "data.path=bad.npz"),
        "bad.npz; write it with numpy.savez",
    ),
    "a table, misspelt": (settings("data.name=csvv"), "has no 'csvv'; did you mean 'csv'"),
    "a table that is not there": (
        settings("data.name=csv", "data.path=no.csv"),
        "correct the path",
    ),
    "a table of words": (
        settings("data.name=csv", "data.path=c.toml"),
        "got 1 column; put a comma between columns",
    ),
    "a scale that is unknown": (
        settings("data.name=csv", "data.path=some.csv", "data.scale=big"),
        "expected 'none' or 'standard'; got 'big'",
    ),
    "MNIST elsewhere": (settings("data.name=mnist", "data.folder=no"), "folkman data fetch mnist"),
    "samples in words": (settings("data.train_size=many"), "expected a whole number; got 'many'"),
    "more samples than there are": (settings("data.train_size=99999"), "in 1..1437"),
    "a Dirichlet of nothing": (
        settings("partition.name=dirichlet", "partition.concentration=0"),
        "0.3 is a common skew",
    ),
    "more shards than samples": (
        settings("partition.name=shards", "partition.shards_per_node=100000"),
        "lower shards_per_node",
    ),
    "a partition that data do not give": (settings("partition.name=given"), "another partition"),
    "devices that data do not name": (
        settings("partition.name=by_device"),
        "by_device: expected data that say which device",
    ),
    "a watch that was not fetched": (
        settings("data.name=smartwatch", "data.folder=no"),
        "folkman data fetch smartwatch",
    ),
    "LEAF elsewhere": (settings("data.name=femnist", "data.path=no"), "LEAF's .json files at"),
    "LEAF that is none": (
        settings("data.name=shakespeare", "data.path=c.toml"),
        "c.toml, line 1: expected JSON",
    ),
    "HAR elsewhere": (settings("data.name=uci_har", "data.path=no"), "that holds train and test"),
    "series that are images": (settings("model.name=conv1d"), "use a data set of series"),
    "no state to remember": (
        settings("model.name=gru", "model.hidden=0"),
        "expected hidden >= 1",
    ),
    "links that are not there": (
        settings("network.name=gains", "network.path=no.csv"),
        "found none at no.csv; check the path",
    ),
    "links that are no array": (
        settings("network.name=gains", "network.path=bad.npz"),
        "write it with numpy.save or numpy.savez",
    ),
    "an unknown fading": (
        settings("network.name=gains", "network.path=some.csv", "network.fading=rice"),
        "'network.fading' is not right",
    ),
    "a trace that is not there": (
        settings("faults.trace=no.csv"),
        "expected a trace at no.csv, found none; check the path",
    ),
    "a trace without samples": (settings("compute_slots.trace=some.csv"), "compute_slots.samples"),
    "more samples in all than held": (settings("partition.total=99999999"), "lower it"),
    "an unknown packing": (settings("compression.name=zip"), "has no 'zip'; known:"),
    "a packing of nothing": (
        settings("compression.name=top_k", "compression.fraction=0"),
        "a share of the entries in (0, 1], got 0.0",
    ),
    "more loss than messages": (settings("faults.loss=1.5"), "expected less than 1; got 1.5"),
    "loss in words": (settings("faults.loss=often"), "expected a number; got 'often'"),
    "back before it left": (settings("faults.away=[[0,9,5]]"), "cannot go away in slot 9"),
    "a crash in words": (settings("faults.crash=yes"), "expected a list"),
    "more liars than nodes": (settings("faults.liars=99"), "expected less than 1; got 99"),
    "gradients in no time": (settings("compute_slots=0"), "compute_slots must be at least 1"),
    "an unknown law of compute times": (
        settings('compute_slots={mean=3.0,law="normal"}'),
        "'compute_slots.law' is not right: expected 'geometric' or 'uniform'",
    ),
    "a target in words": (settings('stop_at={train_loss="low"}'), "expected a number; got 'low'"),
    "a seed in words": (settings("seeds=[one]"), "expected a list, as [0, 1, 2]; got '[one]'"),
    "half a seed": (settings("seeds=[0.5]"), "expected a whole number; got 0.5"),
    "seeds that are a truth": (settings("seeds=true"), "expected a list"),
    "a name of nothing": (settings("name="), "expected letters, digits, spaces and the signs"),
    "a name of 400 letters": (settings(f"name={'x' * 400}"), "expected at most 100 letters"),
    "a configuration that is not there": (["run", "none.toml"], "check the path"),
    "a folder for a configuration": (["run", "sub"], "sub is a folder; name the .toml in it"),
    "a value that is missing": (["run", "broken.toml"], "at line 1, column 9"),
    "a key twice": (["run", "twice.toml"], "at line 2"),
    "bytes for text": (["run", "bytes.toml"], "expected TOML in bytes.toml"),
    "a number for a table": (["run", "number.toml"], "must be one table or more, got 3"),
    "a timeline that is none": (
        settings("network.name=trace", "network.path=bad.npz"),
        "keep_timelines = true writes one",
    ),
    "a file for a folder": (["run", "--out", "c.toml"], "c.toml is a file; choose another --out"),
    "going on with nothing": (["run", "--resume", "nothing"], "expected a run folder"),
    "going on with a file": (["run", "--resume", "c.toml"], "expected a run folder"),
    "going on with settings": (["run", "--resume", "sub", "--set", "slots=3"], "leave out the con"),
    "a list of no runs": (["ls", "nothing"], "make one with: folkman run"),
    "a figure of an unknown style": (["plot", "sub", "--style", "nature"], "known: screen, dark"),
    "a figure as text": (["plot", "sub", "--out", "x.txt"], "ends in .png, .svg or .pdf"),
    "a report of a file": (["report", "c.toml"], "c.toml is no folder; check the path"),
    "reports of jobs in one file": (
        ["report", "sub", "--jobs", "--out", "x.html"],
        "leave out --o",
    ),
    "a folder against itself": (["compare", "sub", "sub"], "each folder can be given once"),
    "differences in a pivot": (["compare", "sub", "--pivot", "a", "--against", "b"], "leave out"),
    "a sweep over a misspelt key": (["sweep", "--grid", "gama=1,2"], "unknown key 'gama'"),
    "lists of unlike lengths": (
        ["sweep", "--list", "nodes=1,2", "--list", "slots=1,2,3"],
        "must be of one length",
    ),
    "an axis of one number": (["sweep", "grid.toml"], "must be a list of values, got 5"),
    "no workers": (["sweep", "--grid", "slots=2,3", "--workers", "0"], "--workers must be at lea"),
    "workers of zero bytes": (["sweep", "--grid", "slots=2", "--memory", "0GB"], "--memory looks"),
    "going on with no sweep": (["sweep", "--resume", "nothing"], "expected a sweep folder"),
    "no budget": (["tune", "c.toml", "--budget", "0"], "raise it, or give fewer values"),
    "tuning of nothing": (["tune", "c.toml", "--over", ""], "known: step"),
    "tuning into a folder": (["tune", "c.toml", "--out", "sub"], "names the configuration to wr"),
    "bounds of nothing": (["theory", "bound", "nothing"], "expected a run folder"),
    "a cell without nodes": (["radio", "--nodes", "0"], "nodes must be at least 1"),
    "an audit of nothing": (["audit", "nothing"], "make one with: folkman reproduce all"),
    "an unknown size": (["reproduce", "fig5", "--size", "huge"], "smoke, laptop or full"),
    "a certificate of nobody": (["certs", "issue", "node-0"], "folkman certs init"),
    "a cluster of an unknown method": (["up", "--label", "nobody"], "known: Algorithm 1, FedAvg"),
    "a cluster of an unknown seed": (["up", "--seed", "77"], "there is no seed 77"),
    "a cluster on an unknown radio": (["up", "--radio", "loud"], "'measured' or 'emulated'"),
    "a key of nodes, misspelt": (["up", "--node-set", "wiree=float16"], "did you mean 'wire'"),
    "a cluster of fewer than no nodes": (["up", "--nodes", "-1"], "expected at least 1"),
    "an end of nothing": (["down", "nothing"], "expected a cluster"),
    "a replay of nothing": (["replay", "nothing"], "expected a cluster"),
    "a replay of no cluster": (["replay", "sub"], "sub has no nodes"),
    "JSON of a node that runs": (["node", "--config", "node.toml", "--json"], "goes with --check"),
    "a node that lacks keys": (["node", "--config", "node.toml", "--check"], "is needed"),
    "a page of nothing": (["dash"], "expected one thing to watch"),
    "a page of two things": (["dash", "sub", "--cluster", "sub"], "expected one thing to watch"),
    "a page of a file": (["dash", "c.toml"], "c.toml is no folder"),
    "an unknown command": (["learn"], "No such command 'learn'"),
    "an unknown option": (["run", "--quick"], "No such option: --quick"),
    "a demo in a folder with content": (["demo", "--out", "sub"], "choose another --out"),
    "a demo over a file": (["demo", "--write", "c.toml"], "choose another name, or remove it"),
}
"""Those of before in other words, and new ones; files that they name are made below."""

OF_A_TABLE = ("data.name=csv",)
NEW = {
    "a mark of UTF-16": (["run", "utf16.toml"], "not text in UTF-8 (byte 0); save it so"),
    "letters of another code": (["run", "latin.toml"], "not text in UTF-8 (byte 9)"),
    "a zero byte": (["run", "zero.toml"], "at line 1, column 10"),
    "brackets without end": (["run", "deep.toml"], "nested too deep to be read; remove some"),
    "digits without end": (["run", "digits.toml"], "thousands of digits; shorten it"),
    "a date for a number": (["run", "date.toml"], "expected a whole number; got datetime.date"),
    "a label over two lines": (["run", "label.toml"], "no control characters"),
    "a label that colours the terminal": (["run", "red.toml"], "no control characters"),
    "a name of signs alone": (settings("name=☃"), "expected letters, digits"),
    "a name that leads out": (settings("name=../x"), "expected letters, digits"),
    "a truth for a number": (settings("batch=true"), "expected a whole number; got True"),
    "a truth for compute times": (settings("compute_slots=true"), "whole number; got True"),
    "a gradient of a trillion slots": (
        settings("compute_slots=1000000000000"),
        "compute_slots must be at most 1000000000",
    ),
    "away until the end of time": (
        settings("faults.away=[[0,0,1000000000000]]"),
        "slots of faults must be below",
    ),
    "loss that is no number": (settings("faults.loss=nan"), "expected less than 1; got nan"),
    "a model that no memory holds": (
        settings("model.name=mlp", "model.hidden=[1000000000]"),
        "make the model smaller, or use fewer nodes",
    ),
    "negative layers": (settings("model.name=mlp", "model.hidden=[-3]"), "at least 1, got [-3]"),
    "power beyond physics": (radio("power_dbm=1e9"), "must lie in -300 .. 300"),
    "a cell of a nanometre": (radio("cell_radius_m=1e-9"), "or raise cell_radius_m"),
    "interferers without end": (radio("interferers_per_cell=1e9"), "lower interferers_per_cell"),
    "negative control bits": (
        radio("schedule=index", "control_bits=-5"),
        "control_bits must not be negative",
    ),
    "weights of other nodes": (
        radio("schedule=index", "weights=[1,2,3]"),
        "one number per node, got 3 for 5 nodes",
    ),
    "a slot of the network's own": (radio("slot_s=3"), "unknown key 'network.slot_s'"),
    "a table with a gap": (
        settings(*OF_A_TABLE, "data.path=nan.csv"),
        "nan.csv, line 2, column 2: expected a finite number, got nan",
    ),
    "a table with a short line": (
        settings(*OF_A_TABLE, "data.path=ragged.csv"),
        "ragged.csv, line 2: expected 3 columns, got 2",
    ),
    "a table of nothing": (
        settings(*OF_A_TABLE, "data.path=empty.csv"),
        "has no line with numbers",
    ),
    "a table cut by semicolons": (
        settings(*OF_A_TABLE, "data.path=semi.csv"),
        "expected a comma between columns, got semicolons",
    ),
    "half a class": (settings(*OF_A_TABLE, "data.path=half.csv"), "or set regression = true"),
    "a negative class": (settings(*OF_A_TABLE, "data.path=minus.csv"), "from 0, got -1"),
    "a graph with a loop": (
        method("name=dpsgd", "topology=loop.csv"),
        "node 0 has an edge to itself",
    ),
    "an edge twice": (method("name=dpsgd", "topology=double.csv"), "is there twice; keep one"),
    "a node below none": (method("name=dpsgd", "topology=below.csv"), "has '0,-1' in line 1"),
    "own code that is no Python": (method("name=syntax.py:f"), "raised SyntaxError"),
    "own code that ends the program": (method("name=exit.py:f"), "raised SystemExit: 7"),
    "own code that fails": (method("name=fails.py:f"), "raised RuntimeError: no"),
    "own code that returns nothing": (
        method("name=nothing.py:f"),
        "expected an fm.Algorithm, got nothing",
    ),
    "a run into a device": (["run", "--out", "/dev/null"], "/dev/null is a file"),
    "a run below a file": (["run", "--out", "c.toml/x"], "a part of this path is a file"),
    "a sweep with a value twice": (
        ["sweep", "--grid", "network.gamma=5,5"],
        "has the value 5 twice; give each value once",
    ),
    "a sweep over a range": (["sweep", "--grid", "slots=2:10"], "got '2:10'"),
    "a sweep over no number": (["sweep", "--grid", "slots=nan"], "whole number; got nan"),
    "a sweep over names": (["sweep", "--grid", "name=a,b"], "'name' changes no arm"),
    "steps without end": (["tune", "c.toml", "--over", "step=1e400"], "different numbers for 'st"),
    "half a seed to tune on": (["tune", "c.toml", "--seeds", "1.5"], "--seeds looks like"),
    "a cell of a billion nodes": (["radio", "--nodes", "1000000000"], "lower --nodes or --drops"),
    "a trillion drops": (["radio", "--drops", "1000000000000"], "lower --nodes or --drops"),
    "a gap of a billion nodes": (
        ["theory", "gap", "--nodes", "1000000000"],
        "expected at most 100000 nodes",
    ),
    "nobody tracks": (["run", "--track", ""], "there is no tracker ''; known: tensorboard"),
}
"""Files that editors and other programs leave, sizes beyond any machine, code that goes wrong."""

X, Y = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2


def npz(**arrays):
    """Return the bytes of an archive."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def table(path, *more):
    return settings("data.name=csv", f"data.path={path}", *more)


def archive(path, *more):
    return settings("data.name=npz", f"data.path={path}", *more)


OWN = {
    "a table of named machines": (table("good.csv"), 'say so with group = "unit"; else leave'),
    "machines for labels": (
        table("good.csv", "data.label=unit"),
        "number the classes, as in m0 = 0, m1 = 1, m2 = 2",
    ),
    "machines of another number": (
        table("good.csv", "data.group=unit", "partition.name=by_device"),
        "set nodes = 3",
    ),
    "machines, misspelt": (table("good.csv", "data.group=nit"), "did you mean 'unit'"),
    "a column to drop, misspelt": (table("good.csv", 'data.drop=["unti"]'), "did you mean 'unit'"),
    "a column to drop that is none": (table("good.csv", "data.drop=[9]"), "no column 9 to drop"),
    "a column to drop as a word": (table("good.csv", "data.drop=unit"), "expected a list"),
    "windows of no line": (table("ok.csv", "data.window=0"), "window of one line or more, got 0"),
    "windows longer than all": (table("ok.csv", "data.window=99"), "lower window, or add lines"),
    "half a line": (table("ok.csv", "data.window=2.5"), "expected a whole number; got 2.5"),
    "all for testing": (table("ok.csv", "data.test_share=1"), "expected test_share in (0, 1)"),
    "an option of a table, misspelt": (table("ok.csv", "data.lable=y"), "did you mean 'label'"),
    "images of a table": (table("ok.csv", "model.name=cnn"), "expects samples of shape (height"),
    "classes for numbers": (
        table("ok.csv", "data.regression=true", "model.name=softmax"),
        "expects labels as targets, 'ok' has numbers (float32); labels go with softmax",
    ),
    "one class": (table("oneclass.csv"), "has one class, of which nothing can be learned"),
    "a name twice": (table("twonames.csv"), "got 'a' twice; give each its own"),
    "tabs": (table("tabs.csv"), "expected a comma between columns, got tabs"),
    "commas in numbers": (table("german.csv"), "got semicolons; save it with commas, and a point"),
    "a number with a comma": (table("quoted.csv"), "column 2 (b): expected a number, got '4,5'"),
    "a quote that never ends": (table("quote.csv"), "line 3: expected 3 columns, got 1"),
    "a zero byte in a table": (table("zero.csv"), "line 3, column 1 (a)"),
    "an endless number": (table("inf.csv"), "line 2, column 2 (b): expected a finite number"),
    "labels far apart": (table("far.csv"), "expected labels 0..C-1, each in use"),
    "words for labels": (table("words.csv"), "number the classes, as in run = 0, walk = 1"),
    "an archive for a table": (table("nolabels.npz"), "expected text in UTF-8"),
    "a table for an archive": (archive("ok.csv"), "write it with numpy.savez"),
    "objects": (archive("objects.npz"), "and no object arrays"),
    "no labels": (archive("nolabels.npz"), "expected an array y, found ['x']; add it"),
    "samples without features": (archive("flat.npz"), "expected x (sample, feature, ...)"),
    "labels with a point": (archive("point.npz"), "store y.astype(int), or set regression = true"),
    "complex numbers": (archive("complex.npz"), "expected real numbers in x, got complex64"),
    "text for samples": (archive("text.npz"), "expected real numbers in x, got <U1; convert"),
    "gaps in an archive": (archive("nan.npz"), "expected finite float32 values in x, got nan"),
    "an empty archive": (archive("empty.npz"), "expected an array x_train, found []"),
    "labels of other samples": (archive("lengths.npz"), "got (40, 3) and (5,)"),
    "half of a test set": (archive("half.npz"), "expected an array y_test, found"),
    "a test set of another shape": (archive("shapes.npz"), "samples of one shape"),
    "labels from -1": (archive("minus.npz"), "expected labels 0..C-1, each in use, got [-1, 0]"),
    "half a machine": (archive("group.npz"), "expected group to be a vector of 40 whole numbers"),
    "no samples": (archive("none.npz"), "expected samples in x, got (0, 3), which holds none"),
    "an archive cut short": (archive("short.npz"), "write it with numpy.savez"),
}
"""Tables and archives as people bring them."""

TABLE = b"".join(b"%.3f,%.3f,m%d,%d\n" % (*x[:2], i % 3, i % 2) for i, x in enumerate(X))
BROUGHT = {
    "good.csv": b"a,b,unit,y\n" + TABLE,
    "ok.csv": b"".join(b"%.3f,%.3f,%d\n" % (*x[:2], i % 2) for i, x in enumerate(X)),
    "oneclass.csv": b"a,b,y\n" + b"".join(b"%.3f,%.3f,0\n" % (*x[:2],) for x in X),
    "twonames.csv": b"a,a,y\n1,2,0\n2,3,1\n3,4,0\n",
    "tabs.csv": b"a\tb\ty\n1\t2\t0\n2\t3\t1\n",
    "german.csv": b"a;b;y\n1,5;2,5;0\n2,5;3,1;1\n",
    "quoted.csv": b'a,b,y\n"1","2","0"\n"3","4,5","1"\n5,6,0\n',
    "quote.csv": b'a,b,y\n1,2,0\n"3,4,1\n5,6,0\n',
    "zero.csv": b"a,b,y\n1,2,0\n\x00,4,1\n",
    "inf.csv": b"a,b,y\n1,inf,0\n3,4,1\n",
    "far.csv": b"a,b,y\n1,2,0\n3,4,1000000000\n",
    "words.csv": b"a,b,y\n1,2,walk\n3,4,run\n5,6,run\n",
    "nolabels.npz": npz(x=X),
    "flat.npz": npz(x=X[:, 0], y=Y),
    "point.npz": npz(x=X, y=Y * 1.0),
    "complex.npz": npz(x=X + 1j, y=Y),
    "text.npz": npz(x=np.array([["a", "b"]] * 4), y=np.arange(4) % 2),
    "nan.npz": npz(x=np.where(X > 1, np.nan, X), y=Y),
    "objects.npz": npz(x=np.array([{}, 1], dtype=object), y=np.arange(2)),
    "empty.npz": npz(),
    "lengths.npz": npz(x=X, y=Y[:5]),
    "half.npz": npz(x_train=X, y_train=Y, x_test=X),
    "shapes.npz": npz(x_train=X, y_train=Y, x_test=X[:, :2], y_test=Y),
    "minus.npz": npz(x=X, y=Y - 1),
    "group.npz": npz(x=X, y=Y, group=Y * 0.5),
    "none.npz": npz(x=X[:0], y=Y[:0]),
    "short.npz": npz(x=X, y=Y)[:-60],
}

FILES = BROUGHT | {
    "algtable.toml": b'[algorithm]\nname = "fedavg"\n',
    "noname.toml": b"[[algorithm]]\nstep = 1.0\n",
    "dataword.toml": b'data = "csv"\n',
    "node2.toml": b"nodes = 2\n",
    "yaml.toml": b"nodes: 5\n",
    "json.toml": b'{"nodes": 5}\n',
    "windows.toml": b'[data]\nname = "csv"\npath = "C:\\data\\mine.csv"\n',
    "c.toml": b"nodes = 5\nslots = 20\n",
    "broken.toml": b"nodes = \n",
    "twice.toml": b"nodes = 5\nnodes = 6\n",
    "bytes.toml": b"\xff\xfe\x00",
    "number.toml": b"algorithm = 3\n",
    "grid.toml": b"[grid]\nnetwork.gamma = 5\n",
    "node.toml": b"node = 0\n",
    "some.csv": b"a,b\n",
    "bad.npz": b"not a zip",
    "own.py": b"x = 1\n",
    "sub/note.txt": b"",
    "utf16.toml": "nodes = 2".encode("utf-16"),
    "latin.toml": 'name = "köln"'.encode("latin-1"),
    "zero.toml": b"nodes = 2\x00\n",
    "deep.toml": b"a = " + b"[" * 2000 + b"]" * 2000,
    "digits.toml": b"nodes = " + b"9" * 5000,
    "date.toml": b"nodes = 2024-01-01\n",
    "label.toml": b'[[algorithm]]\nname = "fedavg"\nlabel = "a\\nb"\n',
    "red.toml": b'[[algorithm]]\nname = "fedavg"\nlabel = "\\u001b[31mred"\n',
    "nan.csv": b"1,2,0\n3,nan,1\n",
    "ragged.csv": b"1,2,0\n3,1\n",
    "empty.csv": b"",
    "semi.csv": b"1;2;0\n3;4;1\n",
    "half.csv": b"1,2,0.5\n3,4,1.5\n",
    "minus.csv": b"1,2,-1\n3,4,1\n",
    "loop.csv": b"0,0\n",
    "double.csv": b"0,1\n0,1\n",
    "below.csv": b"0,-1\n",
    "syntax.py": b"def f(:\n",
    "exit.py": b"import sys\nsys.exit(7)\n",
    "fails.py": b'raise RuntimeError("no")\n',
    "nothing.py": b"def f(step: float = 1.0):\n    pass\n",
}
LEAKS = ("Traceback", "pydantic", "allow_pickle", "codec can't", "NoneType", "object has no attr")
"""What a sentence for people does not say."""


@pytest.mark.parametrize("name", [*MORE, *NEW, *OWN])
def test_more_wrong_inputs_are_refused_in_plain_words(name, tmp_path):
    arguments, complaint = (MORE | NEW | OWN)[name]
    for file, content in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    began_s = time.process_time()
    done = shell.folkman(*arguments, cwd=tmp_path)

    told = " ".join(done.stderr.split())
    assert done.returncode == 2, (done.stdout, told)
    assert complaint in told
    assert not any(leak in told for leak in LEAKS), told
    assert not done.stdout
    assert sorted(tmp_path.rglob("*")) == before
    assert time.process_time() - began_s < MOST_S


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
    "a page on an impossible port": (["dash", ".", "--port", "99999"], "a port lies in"),
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


def test_a_link_to_itself_is_no_full_disk(tmp_path):
    (tmp_path / "loop.toml").symlink_to("loop.toml")

    done = shell.folkman("run", "loop.toml", cwd=tmp_path)

    assert done.returncode == 2
    assert "name the file itself" in done.stderr
    assert "written half" not in done.stderr


def test_a_byte_order_mark_and_other_ends_of_lines_are_read(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbfnodes = 7\r\nslotz = 2\r\n")

    done = shell.folkman("run", "mine.toml", cwd=tmp_path)

    assert "unknown key 'slotz'" in done.stderr
