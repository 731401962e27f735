"""The pages run as doctests, each in a temporary folder."""

import pytest

collect_ignore = ["conf.py"]  # it imports what only building the documentation needs


@pytest.fixture(autouse=True)
def _a_folder_to_play_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
