"""Pages in a real browser, where there is one: nothing overflows, nothing complains, something is seen."""

import dataclasses
import json
import re
import shutil
import subprocess
from html import escape, unescape

import numpy as np
import pytest

import duramen as dm
from duramen.report.page import report_html
from tests.coreset.cores import logistic_core
from tests.report.test_page import HISTORY, keeping, live, page_of

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome"),
]

PROBE = """<script>
addEventListener("load", () => {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const page = document.documentElement;
  const cut = [...document.querySelectorAll("svg text")].filter((one) => {
    const box = one.getBoundingClientRect(), frame = one.ownerSVGElement.getBoundingClientRect();
    return box.left < frame.left - 2 || box.right > frame.right + 2;
  }).map((one) => one.textContent);
  console.log("the probe ran");
  const found = {wide: page.scrollWidth, seen: page.clientWidth, tall: page.scrollHeight, cut: cut,
                 colour: getComputedStyle(document.body).backgroundColor};
  parent.document.body.setAttribute("data-probe", JSON.stringify(found));
});
</script>"""


def browse(folder, html, *options, width=1200):
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions",
        "--disable-dev-shm-usage", "--no-first-run", "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={width},2400", *options, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, encoding="utf-8")


def probed(folder, html, *options, width=1200):
    """Open a page in a frame of any width, with a script that measures it; the page itself forbids scripts."""
    policy = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert policy.search(html)
    opened = escape(policy.sub("", html).replace("</body>", f"{PROBE}</body>"))
    frame = f'<iframe style="border:0" width="{width}" height="2400" srcdoc="{opened}"></iframe>'
    done = browse(folder, f"<!DOCTYPE html><body>{frame}</body>", "--dump-dom", *options)
    messages = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(messages) == 1, messages
    assert "the probe ran" in messages[0]
    attribute = re.search(r'data-probe="([^"]*)"', done.stdout).group(1)
    return json.loads(unescape(attribute))


def wide_page():
    """Make a page with names and numbers as long as they come."""
    X = np.random.default_rng(0).normal(size=(500, 4)) * [1e12, 1e-9, 1, 1]
    y = (X[:, 2] > 0).astype(int)
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=90, n_outliers=9, random_state=0)
    core = dataclasses.replace(core, columns=("w" * 300, "two words", "x" * 80, "d"))
    found = dm.certify(core, X, y, radius=0.1, n_probes=6, ascent_steps=2)
    made = keeping(notes={"n" * 100: "v" * 1000}, history=HISTORY * 3)
    return report_html(core, title="t" * 150, certificate=found, live=made)


@pytest.mark.parametrize("width", [1200, 700, 420])
def test_a_page_does_not_overflow(tmp_path, width):
    found = probed(tmp_path, wide_page(), width=width)
    assert found["seen"] == width
    assert found["wide"] <= found["seen"]
    assert found["cut"] == []
    assert found["tall"] > 2000


def test_light_and_dark(tmp_path):
    html = page_of(keeping(history=HISTORY))
    light = probed(tmp_path, html, "--blink-settings=preferredColorScheme=1")
    dark = probed(tmp_path, html, "--blink-settings=preferredColorScheme=0")
    brightness = [sum(map(int, re.findall(r"\d+", each["colour"])[:3])) for each in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 100


def test_something_is_seen(tmp_path):
    from matplotlib import image

    browse(tmp_path, report_html(logistic_core(), title="t"), f"--screenshot={tmp_path / 'page.png'}")
    pixels = image.imread(tmp_path / "page.png")[..., :3]
    assert pixels.shape[:2] == (2400, 1200)
    middle = (pixels[:, 100:1100] * 255).astype(np.int64) @ [65536, 256, 1]
    colours, counts = np.unique(middle, return_counts=True)
    assert len(colours) > 50
    assert counts.max() < 0.98 * middle.size


def test_a_script_in_the_data_does_not_run(tmp_path):
    html = report_html(live().coreset(), title="<script>document.title = 'taken'</script>")
    assert "<title>taken</title>" not in browse(tmp_path, html, "--dump-dom").stdout
