"""The pictures of the documentation: all are there, can be read, and show what the library computes now."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "tools" / "pictures.py"
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="not in a checkout")
SVG = "{http://www.w3.org/2000/svg}"
CHEAP = [
    "data-flow",
    "how-split",
    "how-layers",
    "how-ranks",
    "how-tree",
]  # the others build dozens of coresets


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("pictures", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown():
    """Find the pictures that pages show: page, alt text, file."""
    for page in sorted(DOCS.rglob("*.md")):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", text):
            if "//" not in target:
                yield page, alt, page.parent / target


def texts(path):
    return [element.text for element in ET.parse(path).iter(f"{SVG}text")]


def test_pages_show_pictures_that_are_there_and_say_what_they_show():
    pictures = list(shown())
    assert pictures
    for page, alt, path in pictures:
        assert path.is_file(), f"{page.name} shows {path.name}, which is not there"
        assert len(alt) > 20, f"{page.name} does not say what {path.name} shows"
        if path.suffix == ".svg":
            ET.parse(path)  # raises where it is not well formed


def test_the_tool_makes_the_pictures_of_two_pages_and_no_others(tool):
    in_page = {path.stem for page, _, path in shown() if page.name in ("how-it-works.md", "data-flow.md")}
    pictures = list((DOCS / "pictures").glob("*.svg"))
    assert in_page == set(tool.PICTURES) == {path.stem for path in pictures}
    for path in pictures:
        assert path.stat().st_size < 150_000
        assert len(ET.parse(path).getroot().findtext(f"{SVG}title")) > 40
        assert len(texts(path)) > 5


@pytest.mark.parametrize("name", CHEAP)
def test_a_picture_made_again_is_the_same_and_says_what_the_library_computes(tool, name, tmp_path):
    kept, made = DOCS / "pictures" / f"{name}.svg", tmp_path / f"{name}.svg"
    tool.save(name, tmp_path)
    first = made.read_bytes()
    tool.save(name, tmp_path)
    assert made.read_bytes() == first
    assert texts(made) == texts(kept)
    assert ET.parse(made).findtext(f"{SVG}title") == ET.parse(kept).findtext(f"{SVG}title")
