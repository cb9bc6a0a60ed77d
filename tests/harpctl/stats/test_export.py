# SPDX-License-Identifier: Apache-2.0
"""`harpctl export`: metrics that Prometheus takes, sums that never fall, and what names them."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from harpctl.cli import app
from harpctl.host.host import Host
from harpctl.stats.export import Collector
from harpctl.stats.layout import Row
from harpctl.stats.metrics import Metric
from tests.conftest import ROOT
from tests.harpctl.stats.build import make_process, pack_page, write_page
from tests.harpctl.stats.test_sample import make_rows

GRAFANA = ROOT / "docs" / "how-to" / "grafana"
METRIC = re.compile(r"\bharp_[a-z_]+")
TIMEOUT_S = 20.0


def make_host(root: Path, *pids: int) -> Host:
    for pid in pids:
        make_process(root, pid, RANK="3")
        write_page(root, pid, pack_page(pid, make_rows(1000, 100, 7)))
    return Host(root)


def by_name(metrics: list[Metric]) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


def values_of(metrics: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    return {point.labels: point.value for point in by_name(metrics)[name].points}


def exposition_of(root: Path) -> str:
    registry = CollectorRegistry()
    registry.register(Collector(make_host(root, 10, 11)))
    return generate_latest(registry).decode()


def test_values(tmp_path: Path) -> None:
    metrics = Collector(make_host(tmp_path, 10)).metrics()
    assert values_of(metrics, "harp_peer_sent_bytes") == {("10", "3", "n1"): 1000.0}
    assert values_of(metrics, "harp_peer_lost_packets") == {("10", "3", "n1"): 7.0}
    assert values_of(metrics, "harp_engine_dropped_packets") == {("10", "3", "", "0", "crc"): 0.0}
    paths = values_of(metrics, "harp_eni_paths")
    assert (paths["10", "3", "eth1", "up"], paths["10", "3", "eth1", "down"]) == (1.0, 0.0)


def test_conventions(tmp_path: Path) -> None:
    """What promtool's lint requires: help, base units, _total at counters alone, no type in a name."""
    text = exposition_of(tmp_path)
    families = list(text_string_to_metric_families(text))
    assert len(families) > 15
    for family in families:
        assert family.documentation
        assert re.fullmatch(r"harp_[a-z0-9_]+", family.name), family.name
        assert not re.search(r"_(ns|ms|kib|mib|bits|milliseconds|nanoseconds|counter|gauge|total)$", family.name)
        assert family.type in {"counter", "gauge"}
        for sample in family.samples:
            assert sample.name == family.name + "_total" * (family.type == "counter")
            assert all(re.fullmatch(r"[a-z]+", label) for label in sample.labels)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_a_sum_does_not_fall_when_a_session_goes(tmp_path: Path) -> None:
    two = make_rows(1000, 100, 0)
    two["session"].append({**two["session"][0], "id": 44, "sent_bytes": 500})
    make_process(tmp_path, 10)
    write_page(tmp_path, 10, pack_page(10, two))
    collector = Collector(Host(tmp_path))
    assert list(values_of(collector.metrics(), "harp_peer_sent_bytes").values()) == [1500.0]
    write_page(tmp_path, 10, pack_page(10, make_rows(1200, 100, 0)))
    assert list(values_of(collector.metrics(), "harp_peer_sent_bytes").values()) == [1700.0]


def test_series_are_bounded(tmp_path: Path) -> None:
    many: dict[str, list[Row]] = make_rows(0, 0, 0)
    many["session"] = [{**many["session"][0], "id": 100 + n, "host": f"n{n}", "sent_bytes": 1} for n in range(200)]
    make_process(tmp_path, 10)
    write_page(tmp_path, 10, pack_page(10, many))
    sent = values_of(Collector(Host(tmp_path), peers_max=5).metrics(), "harp_peer_sent_bytes")
    assert len(sent) == 6
    assert sent["10", "", "other"] == 195.0


def test_processes_that_are_gone_have_no_series(tmp_path: Path) -> None:
    write_page(tmp_path, 12, pack_page(12, make_rows(1, 1, 1)))
    metrics = Collector(make_host(tmp_path, 10)).metrics()
    assert {labels[0] for labels in values_of(metrics, "harp_peer_sent_bytes")} == {"10"}


def test_processes_of_two_containers_with_one_number_are_two(tmp_path: Path) -> None:
    """Prometheus rejects a scrape in which a series is there twice."""
    for number, namespace in enumerate((1000, 2000)):
        write_page(tmp_path, 7, pack_page(7, make_rows(1000, 100, 0), namespace=namespace), number)
    metrics = list(Collector(Host(tmp_path)).metrics())
    for metric in metrics:
        labels = [point.labels for point in metric.points]
        assert len(set(labels)) == len(labels), metric.name
    assert {label[0] for label in values_of(metrics, "harp_process_late_seconds")} == {"7@1000", "7@2000"}


def test_a_bad_file_is_counted(tmp_path: Path) -> None:
    write_page(tmp_path, 12, b"nothing")
    assert values_of(Collector(make_host(tmp_path, 10)).metrics(), "harp_unreadable_files") == {(): 1.0}


# ---- the command ----


def run_export(*words: str) -> Result:
    return CliRunner().invoke(app, ["export", *words])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the command look at a directory of the test's."""
    monkeypatch.setenv("HARP_STATS_DIR", str(tmp_path))
    (tmp_path / "10-4711.stats").write_bytes(pack_page(10, make_rows(1000, 100, 7), namespace=1))
    return tmp_path


def test_output(here: Path) -> None:
    done = run_export()
    assert done.exit_code == 0
    assert 'harp_peer_sent_bytes_total{peer="n1",pid="10@1",rank=""} 1000.0' in done.output
    metrics: list[dict[str, Any]] = json.loads(run_export("--json").output)
    assert len([metric for metric in metrics if metric["name"] == "harp_peer_sent_bytes"]) == 1
    assert here


def test_textfile(here: Path) -> None:
    file = here / "harp.prom"
    assert run_export("--textfile", str(file), "--interval", "0").exit_code == 0
    assert "harp_peer_sent_bytes_total" in file.read_text()
    assert run_export("--textfile", str(here / "no" / "harp.prom")).exit_code == 1
    assert run_export("--textfile", str(here / "harp.txt")).exit_code == 2
    assert run_export("--textfile", str(file), "--listen", ":1").exit_code == 2


def test_http(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_export("--listen", f"127.0.0.1:{port}")
        assert done.exit_code == 1
        assert "Address already in use" in done.output
    assert run_export("--listen", "nothing").exit_code == 2
    threading.Thread(target=run_export, args=("--listen", f"127.0.0.1:{port}"), daemon=True).start()
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert b"harp_peer_sent_bytes_total" in answer.read()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert here


# ---- dashboard and alerts ----


def exported_names(tmp_path: Path) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", exposition_of(tmp_path), re.MULTILINE))


def missing_parts(ours: object, loaded: object, at: str = "") -> list[str]:
    """Return where something of ours is not in what was loaded."""
    if isinstance(ours, dict) and isinstance(loaded, dict):
        return [path for key in ours for path in missing_parts(ours[key], loaded.get(key), f"{at}.{key}")]
    if isinstance(ours, list) and isinstance(loaded, list) and len(ours) == len(loaded):
        return [
            path
            for i, (mine, its) in enumerate(zip(ours, loaded, strict=True))
            for path in missing_parts(mine, its, f"{at}[{i}]")
        ]
    return [] if ours == loaded else [at]


def test_grafanas_own_model_loads_the_whole_dashboard() -> None:
    """Whatever Grafana's model does not know, Grafana leaves out without a word."""
    dashboard = json.loads((GRAFANA / "harp.json").read_text(encoding="utf-8"))
    loaded = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert missing_parts(dashboard, loaded) == []
    dashboard["panels"][0]["gridPosition"] = dashboard["panels"][0].pop("gridPos")
    loaded = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert missing_parts(dashboard, loaded) == [".panels[0].gridPosition"]


def test_the_dashboard_names_only_metrics_that_exist(tmp_path: Path) -> None:
    dashboard = json.loads((GRAFANA / "harp.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(expressions) == len(panels) >= 8
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    named = {name for expression in [*expressions, *variables] for name in METRIC.findall(expression)}
    assert len(named) >= 8
    assert named - exported_names(tmp_path) == set()


def test_the_alerts_name_only_metrics_that_exist(tmp_path: Path) -> None:
    rules = (GRAFANA / "alerts.yml").read_text(encoding="utf-8")
    named = set(METRIC.findall(rules))
    assert rules.count("- alert: ") == 2
    assert len(named) >= 4
    assert named - exported_names(tmp_path) == set()


def documented_metrics() -> dict[str, str]:
    """Return the metrics of docs/reference/statistics.md with their labels beside pid and rank."""
    doc = (ROOT / "docs" / "reference" / "statistics.md").read_text(encoding="utf-8").split("\n## Prometheus\n")[1]
    found: dict[str, str] = {}
    for entry in re.findall(r"^- ((?:.+\n)(?:  .+\n)*)", doc.split("\n## ")[0], re.MULTILINE):
        labels = re.search(r"\((.*?)\)", entry)
        words = re.findall(r"`([^`]+)`", entry)
        for name in (word for word in words if word.startswith("harp_")):
            fields = [word for word in words if not word.startswith("harp_")] if "NAME" in name else [""]
            found |= {name.replace("NAME", field): labels[1] if labels else "" for field in fields}
    return found


def test_metrics_are_documented(tmp_path: Path) -> None:
    for metric in Collector(make_host(tmp_path, 10)).metrics():
        if metric.name.startswith("harp_engine_") and metric.name != "harp_engine_dropped_packets":
            continue  # those of the table of engines
        labels = ", ".join(label for label in metric.labels if label not in {"pid", "rank"})
        assert documented_metrics()[metric.name + "_total" * (metric.kind == "counter")] == labels, metric.name
