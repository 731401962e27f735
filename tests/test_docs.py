"""The documentation: links work, Python runs, and commands exist."""

import doctest
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import pytest

from duramen.cli import main, make_parser

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="not in a checkout")

PAGES = sorted(DOCS.rglob("*.md"))
BESIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
ALL = [*BESIDE, *PAGES]

BLOCK = re.compile(
    r"^(?P<fence>`{3,})(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
KEYWORDS = ("if", "then", "else", "do", "!")
SHELLS = ("console", "sh", "bash", "text")
WALKED = ("start.md", "recipes/forget-a-customer.md", "recipes/nightly-table.md")

every_page = pytest.mark.parametrize("page", ALL, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page):
    """List the fenced blocks of a page: the word after the fence, and the text."""
    return [(found["kind"].strip(), found["text"]) for found in BLOCK.finditer(page.read_text())]


def prose(page):
    """Return a page without its code."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", BLOCK.sub("", page.read_text()))


def anchors(page):
    """Collect the anchors of a page's headings, as GitHub and MyST make them."""
    found = {}
    for heading in re.findall(r"^#+ +(.+?)\s*$", BLOCK.sub("", page.read_text()), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


@every_page
def test_links_lead_somewhere(page):
    for link in LINK.finditer(prose(page)):
        target, _, anchor = unquote(link["target"]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{link[0]} leads to nothing"
        headings = anchors(there) if anchor else [anchor]
        assert anchor in headings, f"{link[0]}: there is no such heading; there are {headings}"


def test_every_page_is_in_the_contents():
    listed = set()
    for page in PAGES:
        for kind, text in blocks(page):
            if kind == "{toctree}":
                entries = [line.strip() for line in text.splitlines() if line and not line.startswith(":")]
                listed |= {(page.parent / f"{entry}.md").resolve() for entry in entries}
    assert {page for page in PAGES if page != DOCS / "index.md"} == listed


@every_page
def test_all_python_runs(page):
    """Every block has prompts, so that it is a doctest, which pytest runs with its outputs."""
    for kind, text in blocks(page):
        if kind in ("python", "py", "pycon", "python3"):
            assert text.lstrip().startswith(">>> "), f"this block would not run:\n{text}"


def commands(text):
    """Split a line of shell into commands, each a list of words, without redirections and comments."""
    words = shlex.shlex(
        re.sub(r"\d?[<>]+(&\d|\s*[^\s|;&()<>]+)", " ", text), posix=True, punctuation_chars=True
    )
    words.whitespace_split = True
    found = [[]]
    for word in words:
        if set(word) <= set("|&;()"):
            found.append([])
        else:
            found[-1].append(word)
    return [words[1:] if words[0] in KEYWORDS else words for words in found if words]


def shell_lines(kind, text):
    """List the lines that are commands: those after a prompt, or all in a block of bare commands."""
    lines = text.replace("\\\n", " ").splitlines()
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return prompted if kind in ("console", "text") else lines


@pytest.fixture(scope="module")
def parser():
    """Make the parser of the command line once: it takes a moment."""
    return make_parser()


def exit_code(call, words):
    """Return the exit code of a call; 0 if it does not exit."""
    try:
        call(words)
    except SystemExit as exit:
        return exit.code
    return 0


@every_page
def test_commands_exist(page, parser, capsys):
    lines = [line for kind, text in blocks(page) if kind in SHELLS for line in shell_lines(kind, text)]
    ours = [words[1:] for line in lines for words in commands(line) if words[0] == "duramen"]
    for words in ours:
        code = exit_code(parser.parse_args, words)  # 0 also for --version and --help
        assert code == 0, f"duramen {shlex.join(words)}\n{capsys.readouterr().err}"


@pytest.mark.parametrize(
    "name", [WALKED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in WALKED[1:])]
)
def test_the_commands_of_a_page_do_what_it_shows(name, tmp_path, monkeypatch, capsys):
    """In the order of the page, with those Python blocks that make its files; outputs as in doctests."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for kind, text in blocks(DOCS / name):
        if kind == "python" and re.search(r"default_rng|to_csv", text):
            for example in doctest.DocTestParser().get_examples(text):
                exec(compile(example.source, name, "single"), names)
            capsys.readouterr()
        elif kind == "console":
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                check(command, shown, capsys)


def check(command, shown, capsys):
    """Run a command, if it is ours, and compare its output with the page."""
    first, *then = commands(command)
    if first[0] != "duramen":
        return
    exit_code(main, first[1:])
    output = "".join(capsys.readouterr())
    if then:  # | head -2
        assert then[0][0] == "head"
        output = "".join(output.splitlines(keepends=True)[: -int(then[0][1])])
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, output, flags), f"{command}\n{output}"
