"""findings.json: what is known of released systems, and which failures of a record it explains."""
import collections
import fnmatch
import json
import pathlib
import re

ALL = json.loads((pathlib.Path(__file__).with_name("findings.json")).read_text())["findings"]
BY_ID = {each["id"]: each for each in ALL}
NOTHING = "nothing"  # explains a failure by itself
NOT_ASKED = "not asked"  # what explains it: too large, or it is not numbers that are wrong
WITHOUT_NUMBERS = ("wrong_refusal", "crash", "timeout", "protocol_error")  # reasons of failures
SHOWN = "shown"  # what came of a script, in a word
HELD_BACK = "held back"  # in place of the id of one that may not be named


def numbers(version):
    """To be compared: [2, 11, 0] of "2.11.0+cu130"."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def named(finding):
    """Whether it may be named: its owner has been told, or a tracker has it."""
    return finding["kind"] != "bug" or bool(finding["link"] or finding["reported"])


def concerns(finding, record):
    """Whether it speaks of that kernel in that version."""
    return finding["system"] == record["system"] and \
        any(fnmatch.fnmatchcase(record["kernel"], each) for each in finding["kernels"]) and \
        any(fnmatch.fnmatchcase(record["version"].partition("+")[0], each)
            for each in finding["versions"])


def alike(text, pattern):
    """By wildcards, of the whole text; after "re:" by a regular expression, of a part."""
    if pattern.startswith("re:"):
        return bool(re.search(pattern[3:], text))
    return fnmatch.fnmatchcase(text, pattern)


def matches(where, group):
    """Whether each field of an entry has a pattern that the group's matches: one of it, where it is
    a list."""
    def told(field):
        return group[field] if isinstance(group[field], list) else [group[field]]

    return all(any(alike(one, pattern) for one in told(field) for pattern in patterns)
               for field, patterns in where.items())


def explains(finding, group):
    """Whether a group of like failures is what the finding says: by an entry of its `where`, but
    for what one of `unless` has; without `where`, by a clause that it breaks. A call that gave no
    numbers is explained by none that speaks of numbers: by an entry alone that names the reason or
    the message."""
    if any(matches(each, group) for each in finding.get("unless", [])):
        return False
    where = finding.get("where", [])
    if group["reason"] in WITHOUT_NUMBERS:
        where = [each for each in where if "message" in each or group["reason"] in
                 each.get("reason", [])]
    elif not where:
        return bool(set(finding["clauses"]) & {group["blamed"], *group["clauses"]})
    return any(matches(each, group) for each in where)


def by_itself(finding, group):
    """Whether it explains a group by what each failure of it was found to be, not by its problem
    alone: a mistake that gives all that is wrong in it, or a declaration that would admit it."""
    return any(matches(each, group) for each in finding.get("where", [])
               if any(each.get(field) and NOT_ASKED not in group[field] and NOTHING not in
                      group[field] for field in ("alike", "admitted_by")))


def of(record, group):
    """The first finding that explains it; None where it is left open."""
    return next((finding for finding in ALL
                 if concerns(finding, record) and explains(finding, group)), None)


def failures(record):
    """What failed in the tier, then what failed of random problems."""
    return [group for group in record["groups"] + record.get("fuzz", {}).get("groups", [])
            if group["outcome"] == "FAIL"]


def script_of(finding, group):
    """What came of a script of a group of its failures; "" where it was another's, or there is
    none."""
    return group.get("script", "") if group.get("script_of") == finding["id"] else ""


def telling(a, b):
    """Of what came of two scripts that were to show the same, what says more: that it is shown,
    else the first that ran, else the first of which it is said why there is none."""
    for says in (lambda end: end == SHOWN, lambda end: end and not end.startswith("no script"),
                 bool):
        for end in (a, b):
            if says(end):
                return end
    return ""


def among(record):
    return [(of(record, group), group) for group in failures(record)]


def counted(record):
    """{what explains failures, or the case of such a group and why it is open: how many}."""
    counts = collections.Counter()
    for finding, group in among(record):
        counts[finding["what"] if finding else
               f"NOT EXPLAINED: {group['reason']} {group['example']}"] += group["count"]
    return counts


def found_by(finding, record):
    """"tier", "fuzz", or "" where no failure of the record is explained by it: no warning, of a
    finding whose `outcome` says that it breaks what is recommended."""
    outcome = finding.get("outcome", "FAIL")
    for by, groups in (("tier", record["groups"]),
                       ("fuzz", record.get("fuzz", {}).get("groups", []))):
        if any(group["outcome"] == outcome and of(record, group) is finding for group in groups):
            return by
    return ""


def missed(record):
    """The bugs that this version is known to have, and no failure shows."""
    return [finding for finding in ALL if finding["kind"] == "bug" and concerns(finding, record) and
            not found_by(finding, record)]
