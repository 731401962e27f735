"""The page about the command line: its reference is made from the parsers, and its examples parse."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from duramen.cli.parser import make_parser
from duramen.cli.tree import commands, subcommands
from tests.cli.running import PAGE, schema

TOOL = Path(__file__).resolve().parents[2] / "tools" / "cli_reference.py"
pytestmark = pytest.mark.skipif(not (PAGE.exists() and TOOL.exists()), reason="not in a checkout")


def test_the_reference_is_up_to_date():
    spec = importlib.util.spec_from_file_location("cli_reference", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = PAGE.read_text()
    assert tool.updated(page) == page, "run python tools/cli_reference.py"


def test_every_command_states_its_json():
    parsed = make_parser()
    with_json = {
        " ".join(one.words)
        for one in commands(parsed)
        if not subcommands(one.parser) and any("--json" in option.flags for option in one.options)
    }
    assert set(schema()) == with_json


def test_every_example_on_the_page_parses():
    blocks = re.findall(r"^```sh\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    examples = [line.partition("#")[0].partition("|")[0] for line in lines if line.startswith("duramen ")]
    assert len(examples) > 25
    for example in examples:
        make_parser().parse_args(shlex.split(example)[1:])
