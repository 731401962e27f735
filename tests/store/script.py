"""A fixed script of operations, what is there after each, and how a child is told to follow it."""

import copy
import pickle
import shutil

import numpy as np

import duramen as dm
from tests.store.life import Life, Step, held, make, mirror, perform


class Script:
    """Fixed operations, and what is there after each."""

    def __init__(self, kind, plans, begin=None):
        self.kind = kind
        life, dyn = (Life(kind, 7), mirror(kind)) if begin is None else begin
        self.operations, self.lives, self.cores = [], [life], [_seen(dyn)]
        for plan in plans:
            rng = np.random.default_rng(len(self.lives))
            ahead, steps = life.copy(), []
            for one in plan:
                steps.append(one(ahead, rng))
                ahead.take(steps[-1])
            perform(steps, dyn)
            life = life.took(steps)
            self.operations.append(steps)
            self.lives.append(life)
            self.cores.append(_seen(dyn))
        self.dyn = dyn

    def found(self, store):
        """After which operations a store may be: several, where one changed nothing that is compared."""
        there = held(store)
        return [k for k, life in enumerate(self.lives) if life.held() == there]


def _seen(dyn):
    """A copy of it, with the coreset made."""
    if not len(dyn):
        return None
    dyn.coreset()
    return copy.copy(dyn)


def insert(n):
    return lambda life, rng: life.inserted(rng, n)


def delete(n):
    return lambda life, rng: Step("delete", ids=life.some(rng, n))


def update(n):
    return lambda life, rng: life.updated(rng, n)


def step(what, value=None):
    return lambda life, rng: Step(what, value=value)


BEGINNING = [[insert(20)], [insert(45)], [insert(None)], [step("compact")]]
REST = [
    [insert(None)],
    [insert(None)],
    [delete(1)],
    [update(1)],
    [insert(10)],
    [delete(4)],
    [insert(None), delete(2), update(2), step("set_outliers", 2.0), step("note", 5)],
    [step("reanchor")],
    [step("compact")],
    [insert(None)],
]


def scripts_of(kind, folder):
    """The beginning of a store, and its later life from the file that the beginning left."""
    begun = Script(kind, BEGINNING)
    with make(folder / "a.duramen", kind) as store:
        for steps in begun.operations:
            perform(steps, store)
    later = Script(kind, REST, (begun.lives[-1], begun.dyn))
    for name, script in (("begun", begun), ("later", later)):
        (folder / name).write_bytes(pickle.dumps(script.operations))
    return folder, {"begun": begun, "later": later}


def order(scripts, which, folder, **more):
    """What a child is told, with the files that it begins with."""
    source, known = scripts
    folder.mkdir()
    path = folder / "a.duramen"
    if which == "later":
        shutil.copy(source / "a.duramen", path)
    said = {"do": "script", "script": str(source / which), "kind": known[which].kind, "path": str(path)}
    return {**said, "create": which == "begun", "seed": 0, "n": -1, "mode": 0, **more}


def opened(path, script, which):
    """Open what is left; a store whose making was cut short is made."""
    return make(path, script.kind) if which == "begun" else dm.open_store(path)
