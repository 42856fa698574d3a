"""Descriptions, held to the schema and to whoever reads them: descriptions.py READ SPEC_FOLDER

Whatever READ takes, description.schema.json must take; what READ refuses it must refuse too, unless
the error is one that it says it can't express. Both are held to the table of descriptions.json, and
to each other on descriptions that are changed at random. Skipped where jsonschema is missing.
"""
import copy
import json
import pathlib
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: this python3 cannot import jsonschema (Debian: python3-jsonschema)")
    sys.exit(77)

SPEC = pathlib.Path(sys.argv[2])
SCHEMA = json.loads((SPEC / "description.schema.json").read_text(encoding="utf-8"))
FORMATS = SCHEMA["$defs"]["dtype"]["enum"]

# What no schema can say, as the reader of descriptions says it.
NOT_OF_FORM = re.compile(
    r"is not declared$|there is no declared dtype"
    r'|is declared, and the feature "\w+" is not$'
    rf'|^/(arithmetic|beyond_caps)/\w+: unknown key "({"|".join(FORMATS)})"'
    r"|no problem can be asked|every problem meets"
    r'|"min" -?\d+ is above "max"|no multiple of \d+ lies'
    r"|^/memory: the terms declared grow faster|add up to no LSE"
    r'|^/dispatch/\d+/name: ".*" stands twice|instances, of which all tables together may have|that ascend'
)

# Put in the place of everything that a description says.
ODD = [
    None, True, False, 0, 1, -1, 3, 16, 1.0, 2.0, 1.5, -0.0, 1e3, 1e300, 2**40, 2**40 + 1,
    2**63 - 1, 2**63, -(2**63), -(2**63) - 1, "", " ", "x", "1e5", "inf", "-inf", "causal\n", "bhsd\n",
    "forward-core\n", "forward-core/limits+declared", "none", "ü" * 150, "ü" * 201, "\u0000",
    "a\u007fb", [], [[]], {}, [1], [1, 1], [[64, 64]], ["x"], [None], {"foo": 1}, {"min": 1.0},
]
MUTATIONS = 3000


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from places(each, (*path, i))


def texts(schema):
    """All that the schema lists, or asks to be equal to."""
    if isinstance(schema, dict):
        found = [each for each in schema.get("enum", []) if isinstance(each, str)]
        return found + [text for each in schema.values() for text in texts(each)]
    return [text for each in schema for text in texts(each)] if isinstance(schema, list) else []


def formats_of_formats(base):
    """What each format may be rounded to on its way."""
    for dtype in FORMATS:
        for key in ["scores", "p", "ds", "softmax"]:
            for to in FORMATS:
                yield {**base, "dtypes": [dtype], "arithmetic": {dtype: {key: to}}}


def at(value, path):
    for step in path:
        value = value[step]
    return value


def replaced(description, path, value):
    if not path:
        return value
    changed = copy.deepcopy(description)
    at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def patched(description, patch):
    """A merge patch, but that null is a value; "$absent" takes a key out."""
    if not isinstance(patch, dict) or not isinstance(description, dict):
        return patch
    result = dict(description)
    for key, value in patch.items():
        if value == "$absent":
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


def mutated(description, keys, values, dice):
    """One to three things otherwise, at places drawn at random."""
    changed = copy.deepcopy(description)
    for _ in range(dice.choice([1, 1, 2, 3])):
        path = dice.choice([p for p in places(changed) if p])
        holder, step = at(changed, path[:-1]), path[-1]
        kind = dice.randrange(5)
        if kind == 0:
            del holder[step]
        elif kind == 1:
            holder[step] = copy.deepcopy(dice.choice(values))
        elif kind == 2 and isinstance(holder, dict):
            holder[dice.choice(keys)] = copy.deepcopy(dice.choice(values))
        elif kind == 3 and isinstance(holder, dict):
            holder[dice.choice(keys)] = holder.pop(step)
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(dice.choice(values)))
    return changed


class Reader:
    """What READ says of descriptions, a line each: nothing, or what is wrong."""

    def __init__(self, program):
        self.program = program

    def __call__(self, descriptions):
        lines = "".join(json.dumps(each) + "\n" for each in descriptions)
        done = subprocess.run(
            [self.program], input=lines.encode(), stdout=subprocess.PIPE, check=True)
        errors = done.stdout.decode().split("\n")
        assert len(errors) == len(descriptions) + 1, "a description without an answer"
        return errors[:-1]


def compare(reader, validator, descriptions, what):
    """How they differ, in words."""
    taken = 0
    for description, error in zip(descriptions, reader(descriptions)):
        valid = validator.is_valid(description)
        taken += not error
        if valid == (not error) or (valid and NOT_OF_FORM.search(error)):
            continue
        text = json.dumps(description)
        if valid:
            yield f"only the schema takes {text}\n    {error}"
        else:
            wrong = jsonschema.exceptions.best_match(validator.iter_errors(description))
            yield f"only the reader takes {text}\n    {wrong.json_path}: {wrong.message[:200]}"
    print(f"{what}: {len(descriptions)}, of which {taken} are taken")


def check_table(reader, validator, table):
    """The table says which errors are of form, so that the schema must see them."""
    descriptions = [patched(table["base"], case["with"]) for case in table["cases"]]
    for case, description, error in zip(table["cases"], descriptions, reader(descriptions)):
        text = json.dumps(case["with"])
        if (not error) != ("error" not in case) or case.get("error", "") not in error:
            yield f"{text}: read as \"{error}\""
        of_form = "error" in case and not case.get("schema_takes_it", False)
        if validator.is_valid(description) == of_form:
            yield f"{text}: the schema {'takes' if of_form else 'refuses'} it"
        if "error" in case and not of_form and not NOT_OF_FORM.search(error):
            yield f"{text}: no schema could say \"{error}\"?"


def main():
    reader = Reader(sys.argv[1])
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    here = pathlib.Path(__file__).parent
    table = json.loads((here / "descriptions.json").read_text(encoding="utf-8"))
    wrong = list(check_table(reader, validator, table))

    rich = [patched(table["base"], each) for each in table["rich"]]
    wrong += [f"a rich description is refused: {error}" for error in reader(rich) if error]
    wrong += compare(reader, validator, list(formats_of_formats(table["base"])), "of formats")
    dice = random.Random(21)
    spots = [(each, path) for each in rich for path in places(each)]
    odd = [(*spot, value) for spot in spots for value in ODD]
    said = sorted(set(texts(SCHEMA)))
    other = [(*spot, text) for spot in spots if isinstance(at(*spot), str) for text in said]
    for what, changes in [("with an odd value", odd), ("with a word from elsewhere", other)]:
        some = dice.sample(changes, min(len(changes), MUTATIONS))
        wrong += compare(reader, validator, [replaced(*change) for change in some], what)

    keys = sorted({step for each in rich for path in places(each) for step in path
                   if isinstance(step, str)} | {"foo", "Batch", ""})
    values = [at(each, path) for each in rich for path in places(each)] + ODD
    drawn = [mutated(dice.choice(rich), keys, values, dice) for _ in range(MUTATIONS)]
    wrong += compare(reader, validator, drawn, "changed at random")
    for each in wrong[:30]:
        print(each)
    if wrong:
        sys.exit(f"{len(wrong)} differences between description.schema.json and its reader")


if __name__ == "__main__":
    main()
