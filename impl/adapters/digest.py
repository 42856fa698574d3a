"""What a record comes to: the figures of impl/adapters/judge, and of the published pages."""
import collections
import json

from findings import NOT_ASKED, NOTHING

SHOWN = ("PASS", "WARN", "FAIL", "INCONCLUSIVE", "UNSUPPORTED", "NOT_RUN")
UNANSWERED = ("CRASH", "TIMEOUT", "PROTOCOL_ERROR")


def verdicts(folder):
    """One of a call that was not answered is a failure as any other, for that reason."""
    for line in (folder / "results.jsonl").read_text().splitlines():
        each = json.loads(line)
        if each["kind"] != "verdict":
            continue
        if each["outcome"] in UNANSWERED:
            each.update(outcome="FAIL", reason=each["outcome"].lower())
        yield each


def blamed(verdict):
    """The clause of which a verdict says that it is broken."""
    return verdict.get("blamed") or verdict["clauses"][0]


def larger(a, b):
    """Of two ratios, which a record writes as numbers or as "inf" and "nan"."""
    return b if not float(a) >= float(b) else a


def worst_tensor(verdict):
    """That is furthest beyond its bound; "" where no number is wrong."""
    beyond = {name: each.get("max_ratio", 0) for name, each in verdict.get("tensors", {}).items()
              if not float(each.get("max_ratio", 0)) <= 1}
    return max(beyond, key=lambda name: (beyond[name] in ("inf", "nan"), float(beyond[name])),
               default="")


def layouts_found(folder):
    """{name: text} of the layouts of problems that fuzz drew, which no id of a case shows."""
    found = folder / "found.json"
    entries = json.loads(found.read_text())["cases"] if found.exists() else []
    told = {each["name"]: each["problem"].get("layouts", {}) for each in entries}
    return {name: f" layouts {how if isinstance(how, str) else json.dumps(how)}"
            for name, how in told.items() if how}


def explanations(folder):
    """{case: {alike, admitted_by}} of failures that run --explain has looked at, each by itself:
    the mistakes of which each gives all that is wrong in it, and the declarations that admit it, or
    NOTHING in their places."""
    diagnosis = folder / "diagnosis.json"
    failures = json.loads(diagnosis.read_text()).get("failures", []) if diagnosis.exists() else []
    return {each["case"]: {"alike": [mistake["name"] for mistake in each["alike"]] or [NOTHING],
                           "admitted_by": each["admitted_by"] or [NOTHING]} for each in failures}


def groups(folder, explained, diagnosed=None):
    """Of what failed or was warned of, like with like: [{outcome, reason, blamed, clauses, cases,
    tensor, count, dtypes, example, problem, message, alike, admitted_by}], the most frequent first.
    Alike is what `explained` says the same of, which is asked of each. The diagnosis may lie in a
    folder of its own."""
    found, layouts, looked_at = {}, layouts_found(folder), explanations(diagnosed or folder)
    for each in verdicts(folder):
        if each["outcome"] not in ("FAIL", "WARN"):
            continue
        cases = "/".join(each["case"].split("/")[:2])
        like = {"outcome": each["outcome"], "reason": each["reason"], "blamed": blamed(each),
                "cases": cases, "tensor": worst_tensor(each)}
        one = {**like, "clauses": each["clauses"], "dtypes": [], "count": 0,
               "example": each["case"],
               "problem": each.get("problem", "") + layouts.get(each["case"].split("/")[1], ""),
               "message": each["message"],
               **looked_at.get(each["case"], {"alike": [NOT_ASKED], "admitted_by": [NOT_ASKED]})}
        group = found.setdefault((*like.values(), explained(one)), one)
        group["count"] += 1
        group["clauses"] = sorted({*group["clauses"], *each["clauses"]})
        group["dtypes"] = sorted({*group["dtypes"], each["dtype"]})
    return sorted(found.values(), key=lambda group: (group["outcome"], -group["count"],
                                                     group["example"]))


def clauses(folder):
    """{clause: {outcome: verdicts}}; a failure counts for the clause that is blamed alone."""
    counts = collections.defaultdict(collections.Counter)
    for each in verdicts(folder):
        wrong = each["outcome"] in ("FAIL", "WARN")
        for clause in [blamed(each)] if wrong else each["clauses"]:
            counts[clause][each["outcome"]] += 1
    return {clause: dict(counts[clause]) for clause in sorted(counts)}


def standings(report):
    """{profile: {dtype: "met within limits"}} of the profiles that were asked for."""
    told = collections.defaultdict(dict)
    for each in report["profiles"]:
        told[each["profile"].partition("/")[0]][each["dtype"]] = each["standing"]
    return dict(told)


def figures(folder, seconds, explained):
    """All of a kernel's record that is kept."""
    outcomes, refused, ratios = collections.Counter(), collections.Counter(), {}
    for each in verdicts(folder):
        outcomes[each["outcome"]] += 1
        if each["outcome"] == "UNSUPPORTED":
            refused[each["reason"] or each["message"]] += 1
        if each["outcome"] == "PASS":
            for name, tensor in each["tensors"].items():
                ratios[name] = larger(ratios.get(name, 0), tensor.get("max_ratio", 0))
    judged = sum(outcomes.values()) - outcomes["UNSUPPORTED"] - outcomes["NOT_RUN"]
    report = json.loads((folder / "report.json").read_text())
    return {"outcomes": {each: outcomes[each] for each in outcomes}, "conclusion":
            report["conclusion"], "profiles": standings(report),
            "unsupported": dict(refused.most_common()),
            "passing_ratios": dict(sorted(ratios.items())), "clauses": clauses(folder),
            "groups": groups(folder, explained), "seconds": round(seconds, 1),
            "verdicts_a_second": round(judged / seconds, 1)}


def seconds(folder):
    """That a run took, without its diagnosis. Raises ValueError where its record is truncated."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    footer = json.loads(lines[-1]) if lines else {}
    if footer.get("kind") != "footer":
        raise ValueError(f"{folder / 'results.jsonl'} is truncated")
    return footer["wall_s"]
