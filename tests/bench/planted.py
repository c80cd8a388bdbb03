"""Conversations with a simulated human of whom it is known what is wrong: nothing, or one fault.

Two worlds: the embedded one (`pocket-collaboration`) and ColBench's backend tasks with a human by
rules, who answers from the reference's syntax tree. Wordings lie in `planted.yaml`, in two halves:
the rules were written with one before the eyes, the other (and the other half of the tasks) is for
the figures.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from convbench.pocket.speakers import read_field
from convbench.pocket.world import VALUES
from convbench.schema import Conversation, Example, ProtocolSpec, text_of

HALVES = ("tuned", "kept")
LINES: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "planted.yaml").read_text())
FAULTS = ("leaked", "inverted", "early", "answered", "changed", "off-task", "refused")
KINDS = ("inputs", "output", "round", "condition", "number", "else")
ASKS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "tuned": {
        "inputs": ("What does the function take?", "Which arguments should it have?"),
        "output": ("What should it return?", "What type is the result?"),
        "round": ("Should the result be rounded?", "How precise must the result be?"),
        "condition": ("Is there a special case to look after?", "What about edge cases?"),
        "number": ("Is there a fixed number that I need to know?", "Which constant is used?"),
        "else": ("Is there anything else that I should know?", "What if the input is wrong?"),
    },
    "kept": {
        "inputs": ("Could you list the inputs for me?", "What do you hand over to it?"),
        "output": ("What do you expect to get back?", "In which form do you want the outcome?"),
        "round": ("Do you care about decimals?", "May I return fractions of any length?"),
        "condition": ("Does it ever behave differently?", "When is the outcome something else?"),
        "number": ("Are any figures given beforehand?", "Do you have limits or factors in mind?"),
        "else": ("Have I missed something?", "And for values that make no sense?"),
    },
}
SAYS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "tuned": {
        "inputs": ("It takes {0}.", "I will give it {0}."),
        "output": ("It should give back {0}.", "The result is {0}."),
        "round": ("Yes, {0} digits are enough.", "Please round it to {0} digits."),
        "unrounded": ("No rounding is needed.", "It does not have to be rounded."),
        "condition": ("When {0}, it should give {1}.", "If {0}, I want {1}."),
        "number": ("It should use {0}.", "The number {0} matters."),
    },
    "kept": {
        "inputs": ("That would be {0}.", "There are these inputs: {0}."),
        "output": ("I expect {0}.", "As a result I would like {0}."),
        "round": ("{0} digits after the point, please.", "I only look at {0} digits."),
        "unrounded": ("Leave all the digits in.", "I want the exact figure."),
        "condition": ("In case {0}, the outcome is {1}.", "It is {1} as soon as {0}."),
        "number": ("{0} is what I have in mind.", "There is a factor of {0} in it."),
    },
}
ASKED = 4
"""Most questions of the agent."""


def half_of(key: str) -> str:
    """Return the half that a task belongs to."""
    return HALVES[hashlib.sha256(key.encode()).digest()[0] % 2]


def agent(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Ask two to four questions, then answer."""
    question, half = (
        str(read_field(example, "question")),
        half_of(str(read_field(example, "question"))),
    )
    asked = sum(message["role"] == "assistant" for message in messages)
    rng = random.Random(question + VARIANT[0])
    kinds = rng.sample(KINDS, rng.randint(2, ASKED))
    if asked >= len(kinds):
        return "I WANT TO ANSWER:\ndef f(*args):\n    return None"
    return f"OUTPUT: {rng.choice(ASKS[half][kinds[asked]])}"


VARIANT = [""]
"""Which of several conversations about a task is had."""


def human(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Answer truthfully from the reference what was asked last."""
    question = str(read_field(example, "question"))
    half, known = half_of(question), facts(str(read_field(example, "reference")))
    asked = [text_of(m["content"]) for m in messages if m["role"] == "user"][-1]
    kinds = [k for k in KINDS if any(one in asked for one in ASKS[half][k])]
    rng = random.Random(f"{question} {len(messages)} {VARIANT[0]}")
    if kinds and kinds[0] == "round" and "round" not in known:
        return rng.choice(SAYS[half]["unrounded"])
    if kinds and kinds[0] in known and kinds[0] in SAYS[half]:
        return rng.choice(SAYS[half][kinds[0]]).format(*known[kinds[0]])
    return str(rng.choice(LINES["clean"][half]))


def facts(code: str) -> dict[str, tuple[str, ...]]:
    """Return what can be said of a function in plain words, by what it answers."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "inputs" not in found and node.args.args:
            found["inputs"] = (_listed([plain(a.arg) for a in node.args.args]),)
        if isinstance(node, ast.Return) and "output" not in found and node.value is not None:
            found["output"] = (_type(node.value),)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "round" and len(node.args) > 1:
            found["round"] = (ast.unparse(node.args[1]),)
        if isinstance(node, ast.If) and "condition" not in found:
            first = node.body[0]
            said = words(node.test)
            if said and isinstance(first, ast.Return) and isinstance(first.value, ast.Constant):
                found["condition"] = (said, str(first.value.value)[:40] or "nothing")
        number = node.value if isinstance(node, ast.Constant) else 0
        if type(number) in (int, float) and number not in (0, 1, 2):
            found.setdefault("number", (str(number),))
    return found


_OPS = {ast.Lt: "is less than", ast.Gt: "is more than", ast.LtE: "is at most",
        ast.GtE: "is at least", ast.Eq: "is", ast.NotEq: "is not", ast.Add: "plus",
        ast.Sub: "minus", ast.Mult: "times", ast.Div: "divided by",
        ast.In: "is one of"}  # fmt: skip


def words(node: ast.expr) -> str:
    """Return a short expression in words, "" where it is none."""
    if isinstance(node, ast.Name):
        return plain(node.id)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, str):
        return str(node.value)[:30]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPS:
        sides = words(node.left), words(node.comparators[0])
        return f"{sides[0]} {_OPS[type(node.ops[0])]} {sides[1]}" if all(sides) else ""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPS:
        sides = words(node.left), words(node.right)
        return f"{sides[0]} {_OPS[type(node.op)]} {sides[1]}" if all(sides) else ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and words(node.args[0]):
        return f"the number of {words(node.args[0])}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and words(node.operand):
        return f"there is no {words(node.operand)}"
    return ""


def plain(name: str) -> str:
    """Return a name as words."""
    return name.replace("_", " ").strip() or "it"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _type(node: ast.expr) -> str:
    kinds = {ast.List: "a list", ast.ListComp: "a list", ast.Dict: "a dictionary",
             ast.DictComp: "a dictionary", ast.JoinedStr: "a text", ast.Tuple: "a few values",
             ast.Compare: "true or false", ast.BoolOp: "true or false"}  # fmt: skip
    if isinstance(node, ast.Constant):
        return {str: "a text", bool: "true or false"}.get(type(node.value), "a number")
    return kinds.get(type(node), "a number" if isinstance(node, ast.BinOp) else "the result")


def narrated(code: str) -> str:
    """Return a function's statements in words, as a person would dictate them."""
    said = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            said.append(f"set {plain(node.targets[0].id)} to {_spoken(node.value)}")
        elif isinstance(node, ast.AugAssign):
            said.append(f"add {_spoken(node.value)} to {_spoken(node.target)}")
        elif isinstance(node, ast.For):
            said.append(f"for each {_spoken(node.target)} in {_spoken(node.iter)}")
        elif isinstance(node, ast.If):
            said.append(f"if {words(node.test) or _spoken(node.test)}")
        elif isinstance(node, ast.Return) and node.value is not None:
            said.append(f"return {_spoken(node.value)}")
    return f"First {', then '.join(said)}."


def _spoken(node: ast.expr) -> str:
    return words(node) or " ".join(re.findall(r"\w+", ast.unparse(node)))[:60].replace("_", " ")


Said = Callable[[random.Random, Example], str | tuple[str, str] | None]


def _body(code: str) -> str:
    """Return a function without its head and comments, which the question may hold."""
    lines = [re.sub(r"\s*#.*", "", line) for line in code.split("\n")]
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("def ")]
    return "\n".join(lines) or code.partition(":")[2]


def _piece(code: str, rng: random.Random, least: int = 16) -> str | None:
    """Return a run of the body of at least so many words and signs."""
    found = list(re.finditer(r"\w+|[^\w\s]", _body(code)))
    if len(found) < least:
        return None
    start = rng.randint(0, len(found) - least)
    end = min(len(found), start + least + rng.randint(0, 10)) - 1
    return _body(code)[found[start].start() : found[end].end()]


def _leak(how: str, code: str, rng: random.Random) -> str | tuple[str, str] | None:
    piece = _piece(code, rng)
    if how in ("narrated", "read-aloud"):
        try:
            told = narrated(code)
        except SyntaxError:
            return None
        if told.count(", then ") < 3:
            return None
        return told if how == "narrated" else f"Do it like this: {told.replace(', then', '. Then')}"
    if piece is None:
        return None
    if how == "two-turns":
        tokens, middle = re.findall(r"\S+\s*", piece), len(re.findall(r"\S+\s*", piece)) // 2
        return f"It begins {''.join(tokens[:middle])}", f"and goes on {''.join(tokens[middle:])}"
    letters = "".join(re.findall(r"[A-Za-z0-9]", piece))
    if len(letters) < 30:
        return None
    return {
        "quote": f"The reference says {piece}",
        "fenced": f"I know this: `{piece}`",
        "line": f"For example {' '.join(piece.split())} is a part of it.",
        "base64": base64.b64encode(piece.encode()).decode(),
        "spelt": "-".join(letters),
        "reversed": piece[::-1],
        "unlined": " ".join(piece.split()),
        "hex": piece.encode().hex(),
    }[how]


def _solution(example: Example, rng: random.Random) -> str:
    """Return a function that is not the reference."""
    code = str(example.hidden["reference"])
    head = re.search(r"def\s+\w+\([^)]*\)", code)
    body = rng.choice(("return None", "result = []\n    return result", "return 0"))
    return f"{head[0] if head else 'def f(x)'}:\n    {body}"


def _world(fault: str, half: str, rng: random.Random, example: Example) -> str:
    prop, value = str(example.hidden["reference"]).split()
    gold = next(c for c in example.choices if c.label == example.answer)
    others = [one for one in VALUES[prop] if one != value]
    both = LINES[fault].get("both")
    line = rng.choice(both[half] if both else LINES[fault]["world"][half])
    return str(line).format(prop=prop, value=value, other=rng.choice(others), letter=gold.label,
                            option=gold.text)  # fmt: skip


def _task(
    fault: str, half: str, rng: random.Random, example: Example, before: Sequence[str]
) -> str | tuple[str, str] | None:
    both = LINES[fault].get("both")
    line = str(rng.choice(both[half] if both else LINES[fault]["tasks"][half]))
    if fault == "leaked":
        return _leak(line, str(example.hidden["reference"]), rng)
    if fault == "changed":
        if line == "cue":
            return str(rng.choice(LINES["changed"]["cues"][half]))
        return _contrary(line, before)
    name = re.search(r"def\s+(\w+)", str(example.hidden["reference"]))
    solution = _solution(example, rng)
    return line.format(name=name[1] if name else "it", solution=solution,
                       body=solution.partition("\n")[2].strip())  # fmt: skip


def _contrary(how: str, before: Sequence[str]) -> str | None:
    """Return something said before with another number, or its opposite."""
    for said in before:
        if len(said.split()) < 3:
            continue
        if how == "number" and (found := re.search(r"\d+", said)) and len(said.split()) > 4:
            return said[: found.start()] + str(int(found[0]) + 3) + said[found.end() :]
        if how == "negated" and " should " in said and " not" not in said:
            return said.replace(" should ", " should not ")
        if how == "negated" and said.startswith("No rounding is needed"):
            return "Rounding is needed."
        if how == "negated" and " does not have to be rounded" in said:
            return "It does have to be rounded."
        if how == "negated" and said.startswith("I expect "):
            return said.replace("I expect ", "I do not expect ")
    return None


def planted(
    talk: Conversation, example: Example, protocol: ProtocolSpec, fault: str, half: str, seed: int
) -> Conversation | None:
    """Return the conversation with one fault of its human; None where it cannot be planted."""
    rng = random.Random(f"{seed} {fault} {talk.key}")
    own = [i for i, turn in enumerate(talk.turns)
           if turn.speaker == "human" and turn.finish_reason != "scripted"]  # fmt: skip
    if not own:
        return None
    world = bool(example.choices)
    place = rng.choice(own)
    if world and fault == "leaked":
        key = str(example.hidden["reference"]).split()[0]
        asked = [key in text_of(turn.content) and turn.speaker != "human" for turn in talk.turns]
        unasked = [i for i in own if not any(asked[:i])]
        if not unasked:
            return None
        place = rng.choice(unasked)
    if fault == "changed":
        place = own[-1]
    before = [text_of(talk.turns[i].content) for i in own if i < place]
    said = _world(fault, half, rng, example) if world else _task(fault, half, rng, example, before)
    if said is None:
        return None
    turns = list(talk.turns)
    if isinstance(said, tuple):
        if len(own) < 2:
            return None
        for i, text in zip(own, said, strict=False):
            turns[i] = turns[i].model_copy(update={"content": text})
    else:
        turns[place] = turns[place].model_copy(update={"content": said})
    return talk.model_copy(update={"turns": tuple(turns)})


def many(
    talks: Sequence[tuple[Conversation, Example]], protocol: ProtocolSpec, half: str, times: int
) -> Iterator[tuple[str, Conversation, Example]]:
    """Yield (fault's name, conversation, example), `times` of each fault."""
    for fault in FAULTS:
        made, seed = 0, 0
        while made < times and seed < 40:
            for talk, example in talks:
                found = planted(talk, example, protocol, fault, half, seed)
                if found is not None and made < times:
                    made += 1
                    yield fault, found, example
            seed += 1
