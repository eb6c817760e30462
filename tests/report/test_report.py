"""The report stands alone: well-formed, nothing fetched, nothing executed, whatever a folder
holds."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from folkman.record.cluster import ClusterFolder
from folkman.record.folder import RunFolder, list_runs
from folkman.record.run import Run
from folkman.record.sweep import read_sweep
from folkman.report.notebook import read_results
from folkman.report.tables import spread
from folkman.report.write import write_job_reports, write_report
from terms import glossary, named

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Collects ids, references and text, and checks that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.refs, self.tags, self.words = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.note(attrs)

    def note(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "clip-path"):
                self.refs.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def parsed(path):
    reader = Reader()
    reader.feed(path.read_text())
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def page(radio_folder, tmp_path_factory):
    return parsed(write_report(radio_folder, tmp_path_factory.mktemp("report") / "report.html"))


def test_it_fetches_and_executes_nothing(page):
    assert not page.tags & {"script", "iframe", "object", "link", "img"}
    assert all(ref.startswith(("#", "url(#", "data:image/png;")) for ref in page.refs)


def test_every_reference_has_one_target_within_the_page(page):
    assert len(page.ids) == len(set(page.ids))
    assert {re.sub(r"^(url\()?#|\)$", "", ref) for ref in page.refs if "#" in ref} <= set(page.ids)


def test_it_has_all_its_parts(page):
    parts = (
        "results",
        "curves",
        "cell",
        "ages",
        "bandwidth",
        "consensus",
        "nodes",
        "configuration",
        "provenance",
    )
    assert set(parts) <= set(page.ids)
    text = " ".join(page.words)
    assert "folkman run cell.toml" in text
    assert "simulated time (s)" in text
    assert "bits on air" in text


SAME = {"loss": "training loss", "gradient": "gradients", "round": "rounds", "band": "share"}
SAME |= {"consensus": "disagreement", "node": "share", "step": "tuned", "fedavg": "arm"}
"""Words of the glossary that another term of the page explains, or that the page's labels are."""


def test_every_word_of_the_glossary_that_it_uses_is_explained_at_its_end(page):
    start = len(page.words) - 1 - page.words[::-1].index("What the words mean")
    text = " ".join(page.words[:start])
    used = [term for term in glossary() if re.search(rf"\b{named(term)}\b", text)]
    explained = set(page.words[start:])

    assert len(used) > 12
    lacking = [t for t in used if SAME.get(t.lower(), t) not in explained and t != "Algorithm 1"]
    assert not lacking


def test_a_label_is_text_and_never_markup(page):
    assert "Algorithm <1>" in " ".join(page.words)
    assert "1" not in page.tags


def test_the_table_has_the_values_of_the_folder(radio_folder, page):
    runs = [run for run in RunFolder(radio_folder).read().runs if run.label == "FedAvg"]
    first, second = (run.last("train_loss") for run in runs)
    half = 12.706 * abs(first - second) / 2  # Student's t for one degree of freedom, over sqrt(2)

    assert spread((first + second) / 2, half) in page.words


def test_an_unfinished_folder_is_shown_as_far_as_it_is(radio_folder, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(radio_folder, folder)
    for name in (
        "parts/fedavg-seed1.parquet",
        "metrics.parquet",
        "provenance.json",
        "network/fedavg-seed0.npz",
    ):
        (folder / name).unlink()
    (folder / "network" / "fedavg-seed1.npz").write_bytes(b"no npz")

    text = " ".join(parsed(write_report(folder)).words)

    assert "2 finished, 1 not learning, 1 waiting" in text
    assert "no round was completed in 40 slots" in text


def test_without_parts_the_rows_come_from_the_metrics(radio_folder, tmp_path):
    folder = tmp_path / "lean"
    shutil.copytree(radio_folder, folder)
    shutil.rmtree(folder / "parts")

    cut, whole = (RunFolder(root).read().runs for root in (folder, radio_folder))
    assert [str(run) for run in cut] == [str(run) for run in whole]


def test_a_damaged_part_is_named_with_its_remedy(radio_folder, tmp_path):
    folder = tmp_path / "bad"
    shutil.copytree(radio_folder, folder)
    (folder / "parts" / "fedavg-seed1.parquet").write_bytes(b"PAR1 and no more")

    with pytest.raises(ValueError, match=r"fedavg-seed1.parquet is damaged: .*; delete it"):
        write_report(folder)


def test_what_is_no_folder_of_ours_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a run or a sweep folder"):
        write_report(tmp_path)


def test_a_cluster_is_refused_with_the_commands_that_fit(tmp_path):
    home = ClusterFolder(tmp_path).node("node-0")
    home.root.mkdir(parents=True)
    home.config.touch()
    RunFolder(tmp_path).config.touch()

    for look in (write_report, read_results, RunFolder.open):
        with pytest.raises(ValueError, match=r"is a cluster .*: folkman status .*dash --cluster"):
            look(tmp_path)
    assert list_runs(tmp_path.parent)[0]["state"] == "cluster"


def make_sweep(root, *, state="finished", format_=1):
    """Write a sweep folder as docs/sweeps.md has it: gamma x seed, one job failed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    jobs, rows = [], []
    for gamma in (2, 8):
        for seed in (0, 1):
            key = f"{gamma}{seed}" * 5
            failed = (gamma, seed) == (8, 1)
            jobs.append({
                "key": key, "folder": f"jobs/{key}", "arm": f"Algorithm 1, gamma={gamma}",
                "algorithm": "async_sharing",
                "label": "Algorithm 1", "seed": seed, "settings": {"network.gamma": gamma},
                "state": "failed" if failed else "finished", "message": "no data" if failed else "",
                "seconds": 1.5, "rss_mb": 300.0, "worker": "host:1",
            })  # fmt: skip
            (root / "jobs" / key).mkdir(parents=True)
            (root / "jobs" / key / "job.log").write_text("reading\nerror: <no data>\n")
            for slot in range(0 if failed else 5):
                rows.append({"arm": jobs[-1]["arm"], "network.gamma": gamma,
                             "algorithm": "async_sharing", "label": "A",
                             "seed": seed, "job": key, "slots": slot, "seconds": slot,
                             "gradients": slot, "bits": slot,
                             "rounds": slot, "train_loss": gamma / (1 + slot) + seed / 10,
                             "test_accuracy": 0.5,
                             "optimum_distance": None, "mean_age": 1.0, "kappa": 1.0,
                             "consensus": 0.1})  # fmt: skip
    index = {"format": format_, "name": "delays", "axes": ["network.gamma"],
             "metrics": ["train_loss"], "state": state,
             "workers": [{"worker": "host:1", "jobs": 4, "rss_mb": 300.0, "peak_mb": 310.0}],
             "jobs": jobs}  # fmt: skip
    (root / "index.json").write_text(json.dumps(index))
    (root / "sweep.toml").write_text("[grid]\n'network.gamma' = [2, 8]\n")
    pq.write_table(pa.Table.from_pylist(rows), root / "results.parquet")
    return root


def test_a_sweep_shows_arms_axes_and_failures(tmp_path):
    page = parsed(write_report(make_sweep(tmp_path)))
    text = " ".join(page.words)

    assert {"results", "axes", "curves", "failures", "jobs", "repeat"} <= set(page.ids)
    assert "error: <no data>" in text
    assert "3 finished, 1 failed" in text
    assert "0.45 ± 0.64" in text  # 2/5 and 2/5 + 0.1: mean 0.45, t(1) 12.7 times 0.05
    assert [run.label for run in read_sweep(tmp_path).runs].count("Algorithm 1, gamma=2") == 2


@pytest.mark.slow
@pytest.mark.process
def test_every_job_gets_its_report_once_and_the_sweeps_links_to_it(
    radio_folder, tmp_path, monkeypatch, capsys
):
    """Three jobs ended: one is damaged and told, two are written; the second time only what ended
    since."""
    from folkman.cli import main

    root = make_sweep(tmp_path)
    finished = [job["folder"] for job in json.loads((root / "index.json").read_text())["jobs"]][:3]
    for folder in finished:
        shutil.copytree(radio_folder, root / folder, dirs_exist_ok=True)
        (root / folder / "report.html").unlink(missing_ok=True)
    (root / finished[2] / "config.toml").write_text("no TOML =")

    monkeypatch.setattr("sys.argv", ["folkman", "report", str(root), "--jobs"])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert "reports of 2 jobs written" in told
    assert f"folkman report {root / finished[2]}" in told
    links = [ref for ref in parsed(root / "report.html").refs if ref.endswith("report.html")]
    assert links == [f"{folder}/report.html" for folder in finished[:2]]
    assert all("curves" in parsed(root / link).ids for link in links)
    shutil.copy(radio_folder / "config.toml", root / finished[2])
    (root / finished[0] / "job.json").write_text("{}")  # ended again
    written, failed = write_job_reports(root, 2)
    assert [page.parent.name for page in written] == [finished[0][5:], finished[2][5:]]
    assert failed == {}
    assert write_job_reports(root) == ([], {})


def test_the_jobs_of_a_run_folder_are_refused(radio_folder):
    with pytest.raises(ValueError, match=r"expected a sweep folder, .* leave out --jobs"):
        write_job_reports(radio_folder)


def test_a_sweep_of_a_later_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has format 7, this folkman reads up to 1; .*upgrade"):
        write_report(make_sweep(tmp_path, format_=7))


def test_a_run_without_rows_makes_no_figure(radio_folder, tmp_path):
    """Only asked for, not begun: the page says so."""
    (tmp_path / "config.toml").write_text((radio_folder / "config.toml").read_text())

    text = " ".join(parsed(write_report(tmp_path)).words)

    assert "No run has begun." in text
    assert "4 waiting" in text
    assert isinstance(RunFolder(tmp_path).read().runs[0], Run)
