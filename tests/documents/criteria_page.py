"""reports/CRITERIA.md, made of what `attest criteria` left: criteria_page.py criteria.json"""
import json
import sys

FORMATS = ("f32", "f16", "bf16")
TITLES = {"theirs": "On what those projects try", "ours": "On cases of Attest"}
HEAD = """# Criteria side by side

What the rules of other projects catch and fail, beside Attest: tables of one run of

    script/criteria

which writes this page from `reports/out/criteria.json`; README.md says what is compared. A mutant
counts once for each format that its fault concerns and the rule is for, and the bundled kernels
once for each instruction set of the machine. The catalogue had {mutants} mutants.
"""


def total(scores, key):
    return sum(scores[dtype][key] for dtype in FORMATS if dtype in scores)


def share(part, all_):
    return f"{part} of {all_}" + (f" ({100 * part / all_:.0f} %)" if all_ else "")


def table(side):
    beside = any("attest_on_the_same" in judge for judge in side["judges"])
    columns = ["rule", "mutants caught", *["Attest, on the same inputs"] * beside,
               "legitimate kernels failed"]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "--:|" * (len(columns) - 1)]
    for judge in side["judges"]:
        scores = judge["scores"]
        wrong = total(scores, "wrong")
        cells = [judge["name"], share(total(scores, "caught"), wrong)]
        if beside:
            same = judge.get("attest_on_the_same")
            caught = same and sum(score["caught"] for score in same.values())
            cells.append(f"{caught} ({100 * caught / wrong:.0f} %)" if same and wrong else "")
        cells.append(f"{total(scores, 'failed')} of {total(scores, 'right')}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    with open(sys.argv[1]) as file:
        found = json.load(file)
    page = HEAD.format(mutants=found["mutants"])
    for side in found["sides"]:
        attest = next(judge for judge in side["judges"] if judge["name"] == "Attest")
        names = {name for score in attest["scores"].values()
                 for name in score["caught_names"] + score["missed_names"]}
        right = max((score["right"] for score in attest["scores"].values()), default=0)
        page += (f"\n## {TITLES[side['name']]}\n\n{side['about']}: {side['cases']} cases, "
                 f"{len(names)} mutants and {right} legitimate kernels.\n\n{table(side)}")
    sys.stdout.write(page)


main()
