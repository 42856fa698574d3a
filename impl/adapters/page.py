"""The page of what is published (impl/adapters/publish), made of page.html."""
import collections
import functools
import html
import json
import pathlib
import re
import string

import digest
import findings
import suite

HERE = pathlib.Path(__file__).resolve().parent
LOCK = json.loads((HERE / "versions.json").read_text())
# What users ask first; the other clauses follow by chapters.
TOPICS = {
    "Causal corners": ["MASK-2", "MASK-3"],
    "Rows without keys": ["EMPTY-1", "EMPTY-2", "EMPTY-3", "EMPTY-4", "EMPTY-5"],
    "NaN and infinity": ["HIDE-2", "HIDE-3", "FINITE-1", "FINITE-2", "FINITE-3", "FINITE-4"],
    "LSE": ["LSE-1", "LSE-2", "GRAD-5"],
    "Windows": ["MASK-4", "LAW-8"],
    "Sinks": ["SINK-1", "SINK-2", "LAW-11"],
    "Shared key heads": ["HEAD-1", "HEAD-2", "LAW-9"],
    "Repeatability": ["DET-1", "DET-2", "DET-3"],
}
MARKS = {"bug": ("wrong", "✗"), "dialect": ("other", "≠"), "limit": ("other", "∅"),
         "right": ("right", "✓"), "warned": ("right", "✓!"), "partly": ("right", "…"),
         "unasked": ("none", "–"), "untold": ("none", "")}
FOUND_BY = ("tier", "fuzz", "")  # as findings.found_by has it
LEGEND = {"bug": "broken", "dialect": "another rule", "limit": "refused", "right": "all pass",
          "warned": "passes, against a recommendation", "partly": "passes as far as it was run",
          "unasked": "not declared, or cases of it fail by another clause"}


def text(of):
    return html.escape(str(of))


class Column:
    """A kernel of a version, as the page has it."""

    def __init__(self, about, kernel, newest):
        self.about, self.kernel, self.newest = about, kernel, newest
        self.name = kernel["kernel"]
        self.version = f"{about['system']} {about['version']}"
        self.words = text(f"{self.version} {self.name} {about['device']}".lower())
        self.older = "" if newest else " class=\"older\""

    def failures(self):
        fuzzed = self.kernel.get("fuzz", {}).get("groups", [])
        return [each for each in self.kernel["groups"] + fuzzed if each["outcome"] == "FAIL"]

    def standing(self, clause):
        """(one of MARKS, in words)."""
        kinds, by_chance = collections.Counter(), 0
        for group in self.failures():
            if group["blamed"] == clause:
                kinds[kind_of(group["finding"])] += group["count"]
                by_chance += group["count"] * (group not in self.kernel["groups"])
        counts = self.kernel["clauses"].get(clause, {})
        words = ", ".join(f"{counts[each]} {each}" for each in digest.SHOWN if counts.get(each))
        words += f"; {by_chance} FAIL of random problems" if by_chance else ""
        for kind in ("bug", "dialect", "limit"):
            if kinds[kind]:
                return kind, words
        if counts.get("NOT_RUN") and (counts.get("PASS") or counts.get("WARN")):
            return "partly", words
        if counts.get("WARN"):
            return "warned", words
        if counts.get("PASS"):
            return "right", words
        return ("unasked" if counts.get("UNSUPPORTED") else "untold"), words


def kind_of(identity):
    return findings.BY_ID[identity]["kind"] if identity != findings.HELD_BACK else "bug"


class Unknown(Exception):
    """A published failure whose finding there is no more."""


def expect_known(path, about):
    for kernel in about["kernels"]:
        for group in kernel["groups"] + kernel.get("fuzz", {}).get("groups", []):
            name = group.get("finding", findings.HELD_BACK)
            if name != findings.HELD_BACK and name not in findings.BY_ID:
                raise Unknown(f"{path}: {kernel['kernel']} has failures of {name}, which "
                              "findings.json has not: judge it anew")


def columns(folder):
    """All kernels that are published: systems by name, the newest version first. Raises
    Unknown."""
    files = []
    for path in sorted(folder.glob("*.json")):
        files.append(json.loads(path.read_text()))
        expect_known(path, files[-1])
    newest = {}
    for each in files:
        key = each["system"], each["device"]
        newest[key] = max(newest.get(key, []), findings.numbers(each["version"]))
    files.sort(key=lambda each: findings.numbers(each["version"]), reverse=True)
    files.sort(key=lambda each: (each["system"], each["device"]))
    return [Column(each, kernel, findings.numbers(each["version"]) ==
                   newest[each["system"], each["device"]])
            for each in files for kernel in each["kernels"]]


def mark(kind, words):
    style, sign = MARKS[kind]
    return f"<td class=\"{style}\" title=\"{text(words)}\">{sign}</td>"


def matrix(kernels, titles):
    others = [clause for clause in titles if not any(clause in each for each in TOPICS.values())]
    for topic, listed in {**TOPICS, "All else": others}.items():
        yield f"<tr class=\"topic\"><th colspan=\"{len(kernels) + 1}\">{text(topic)}</th></tr>"
        for clause in listed:
            cells = []
            for each in kernels:
                cell = mark(*each.standing(clause))
                words = f"<td data-words=\"{each.words}\""
                cells.append(cell.replace("<td", words, 1) if each.newest
                             else cell.replace("<td class=\"", f"{words} class=\"older ", 1))
            words = text(f"{clause} {titles[clause]} {topic}".lower())
            yield f"<tr data-words=\"{words}\">" \
                  f"<th>{clause} {text(titles[clause])}</th>{''.join(cells)}</tr>"


def asked(standing):
    """Whether a profile's standing is of cases that were judged."""
    return not re.match(r"no case|not asked|no failure in 0\b", standing)


def standings(kernel):
    told = {profile.removesuffix("+declared"): [f"{dtype} {how}" for dtype, how in each.items()
                                                if asked(how)]
            for profile, each in kernel["profiles"].items()}
    return "; ".join(f"{profile}: {', '.join(each)}" for profile, each in told.items() if each)


def causes(groups):
    """"3 bug, 4 limit": of failures, by what kind of finding explains them."""
    kinds = collections.Counter()
    for group in groups:
        if group["outcome"] == "FAIL":
            kinds[kind_of(group["finding"])] += group["count"]
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def fuzzed(kernel):
    """Of random problems: how many failed of those tried, and what the distinct ones are."""
    tried = kernel.get("fuzz", {}).get("tried")
    if not tried:
        return ""
    failed = sum(tried.get(outcome, 0) for outcome in ("FAIL", *digest.UNANSWERED))
    told = causes(kernel["fuzz"]["groups"])
    return f"{failed} of {sum(tried.values())}" + (f"; distinct: {told}" if told else "")


def refused(kernel):
    """What is not judged, by its reason."""
    reasons = collections.Counter()
    for reason, count in kernel["unsupported"].items():
        reasons[reason if " " not in reason else "not promised"] += count
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())


def suite_of(kernel):
    """Which cases a record is of, in words: those of one suite are alike in number."""
    shard = f", part {kernel['shard']} of it" if "shard" in kernel else ""
    return f"{kernel['tier']}{shard}, {sum(kernel['outcomes'].values()):,} cases, Attest " \
           f"{kernel.get('attest', '(version not noted)')}"


def lacks(kernel):
    """What a record has not, which another may have."""
    left = kernel["outcomes"].get("NOT_RUN", 0)
    groups = [each for each in kernel["groups"] if each["outcome"] == "FAIL"]
    told = ["all but the smoke tier"] if kernel["tier"] == "smoke" else []
    told += [f"all but part {kernel['shard']} of the tier"] if "shard" in kernel else []
    told += [f"{left:,} cases, for want of time"] if left else []
    told += [] if kernel.get("fuzz", {}).get("tried") else ["random problems"]
    told += ["scripts"] if groups and not any(each["script"] for each in groups) else []
    return ", ".join(told) or "nothing"


def kernel_row(each):
    outcomes, kernel = each.kernel["outcomes"], each.kernel
    ratios = " ".join(f"{name} {float(ratio):.2g}" for name, ratio in
                      kernel["passing_ratios"].items())
    numbers = {name: f"<td class=\"number\">{outcomes.get(name, 0)}</td>" for name in digest.SHOWN}
    reasons = ", ".join(f"{count} {reason}" for reason, count in kernel["unsupported"].items())
    cells = [f"<td>{text(suite_of(kernel))}</td>",
             numbers["PASS"], numbers["WARN"], numbers["FAIL"],
             f"<td>{text(causes(kernel['groups']))}</td>", f"<td>{text(fuzzed(kernel))}</td>",
             numbers["INCONCLUSIVE"], numbers["UNSUPPORTED"],
             f"<td title=\"{text(reasons)}\">{text(refused(kernel))}</td>", numbers["NOT_RUN"],
             f"<td>{text(ratios)}</td>", f"<td>{text(standings(kernel))}</td>",
             f"<td class=\"number\">{kernel['verdicts_a_second']}</td>",
             f"<td>{text(lacks(kernel))}</td>"]
    return f"<tr data-words=\"{each.words}\"{each.older}><th>{text(each.name)} " \
           f"<span class=\"none\">{text(each.version)}</span></th>{''.join(cells)}</tr>"


def places(kernels, identity):
    """({"torch 2.11.0": kernels}, failures, those that it explains by themselves, what came of its
    scripts) of a finding."""
    where, count, alone, scripts = collections.defaultdict(set), 0, 0, []
    for each in kernels:
        for group in each.failures():
            if group["finding"] == identity:
                where[each.version].add(each.name)
                count += group["count"]
                alone += group.get("by_itself", 0)
                scripts.append(group["script"])
    return where, count, alone, scripts


def by_script(finding, scripts):
    """Whether a bug is shown by a script, in words; of those held back, of how many kinds of
    failures."""
    if finding is None:
        return f"{scripts.count(findings.SHOWN)} of {len(scripts)} kinds of failures"
    if finding["kind"] != "bug":
        return ""
    told = functools.reduce(findings.telling, scripts, "")
    return "yes" if told == findings.SHOWN else f"no: {told[:60] or 'none was run'}"


def owner(finding):
    told = []
    if finding["link"]:
        thread = finding["link"].split("/", 3)[3]
        told.append(f"<a href=\"{text(finding['link'])}\">{text(thread)}</a>")
    if finding["reported"]:
        told.append(f"told on {text(finding['reported'])}")
    if finding.get("answer"):
        told.append(f"says: {text(finding['answer'])}")
    return "; ".join(told)


def finding_rows(kernels):
    for finding in [*findings.ALL, None]:
        if finding and not findings.named(finding):
            continue
        identity = finding["id"] if finding else findings.HELD_BACK
        where, count, alone, scripts = places(kernels, identity)
        if not count:
            continue
        named = f"{text(finding['what'])} <span class=\"none\">{', '.join(finding['clauses'])}" \
                "</span>" if finding else "not named before their owners have been told"
        kind = finding["kind"] if finding else "bug"
        at = "; ".join(f"{version}: {', '.join(sorted(names))}" for version, names in where.items())
        shown = by_script(finding, scripts)
        words = text(f"{at} {finding['what'] if finding else ''}".lower())
        yield f"<tr data-words=\"{words}\"><th>{named}</th>" \
              f"<td class=\"{MARKS[kind][0]}\">{kind}</td><td>{text(at)}</td>" \
              f"<td class=\"number\">{count}</td><td class=\"number\">{alone or ''}</td>" \
              f"<td>{text(shown)}</td>" \
              f"<td>{owner(finding) if finding else ''}</td></tr>"


class Known:
    """A bug that a thread of a tracker tells, of versions that have been judged."""

    def __init__(self):
        self.findings, self.where = [], {by: {} for by in FOUND_BY}

    def add(self, finding, by, column):
        if finding not in self.findings:
            self.findings.append(finding)
        self.where[by].setdefault(column.version, []).append(column.name)

    @property
    def by(self):
        """What found it in some version, the tier before random problems."""
        return next(by for by in FOUND_BY if self.where[by])

    def told(self, by):
        return "; ".join(f"{version}: {', '.join(names)}"
                         for version, names in self.where[by].items())


def recall(kernels):
    """The distinct ones, by their links."""
    known = collections.defaultdict(Known)
    for column in kernels:
        for each in column.kernel["recall"]:
            finding = findings.BY_ID.get(each["finding"], {})
            if finding.get("link"):
                known[finding["link"]].add(finding, each["by"], column)
    return list(known.values())


def recalled(known):
    """The figures: bugs first, then each of their versions and kernels."""
    bugs = collections.Counter(each.by for each in known)
    times = {by: sum(len(names) for each in known for names in each.where[by].values())
             for by in FOUND_BY}
    return f"{bugs['tier'] + bugs['fuzz']} of {len(known)} distinct bugs, each a thread of a " \
           f"tracker: {bugs['tier']} by the tier, {bugs['fuzz']} by random problems alone, " \
           f"{bugs['']} not at all. Counted for each version and kernel that has it: " \
           f"{times['tier'] + times['fuzz']} of {sum(times.values())}."


def recall_rows(known):
    for each in known:
        said = "<br>".join(dict.fromkeys(text(finding["what"]) for finding in each.findings))
        covers = "; ".join(dict.fromkeys(finding["covers"] for finding in each.findings
                                         if "covers" in finding))
        missed = each.told("") + (f" ({covers})" if each.where[""] and covers else "")
        words = text(f"{said} {each.told('tier')} {each.told('fuzz')} {missed}".lower())
        yield f"<tr data-words=\"{words}\"><th>{said} {owner(each.findings[0])}</th>" \
              f"<td>{text(each.told('tier'))}</td><td>{text(each.told('fuzz'))}</td>" \
              f"<td>{text(missed)}</td></tr>"


def suites(kernels):
    """How many records are of each suite."""
    counts = collections.Counter(suite_of(each.kernel) for each in kernels)
    return "; ".join(f"{count} of {suite}" for suite, count in sorted(counts.items()))


def left_out(kernels):
    """What the lock has, and no record, and what has no adapter. Its versions are of CPUs: which
    one a machine with a GPU has is not ours to say."""
    judged = {(each.about["system"], each.about["version"], each.name) for each in kernels}
    missing = collections.defaultdict(list)  # kernels, by where they have none
    for system, about in LOCK["systems"].items():
        for adapter in about["adapters"].values():
            for kernel in adapter["kernels"]:
                if adapter["device"] == "cuda":
                    if not any(each[::2] == (system, kernel) for each in judged):
                        missing[f"{system} on CUDA"].append(kernel)
                    continue
                for version in about["versions"]:
                    if findings.numbers(version) >= findings.numbers(adapter.get("since", "0")) \
                            and (system, version, kernel) not in judged:
                        missing[f"{system} {version} on CPUs"].append(kernel)
    for where, names in missing.items():
        yield f"<li>{text(where)}: no record of {text(', '.join(names))}</li>"
    for each in LOCK["left_out"]:
        yield f"<li>{text(each['system'])}: {text(each['why'])}</li>"


def command(kernel):
    """That a record was made by; of parts, what older records do not note is told."""
    told = kernel["command"]
    if "--shard" in told and "--join" not in told:
        told += "\n# and so on, a command for each part; then impl/adapters/judge --join"
    return told


def command_parts(kernels):
    for each in kernels:
        kernel = each.kernel
        machine = ", ".join(f"{name} {value}" for name, value in kernel["machine"].items())
        fuzzed = sum(kernel.get("fuzz", {}).get("tried", {}).values())
        random = f" and {fuzzed} random problems of seed {kernel['fuzz']['seed']}" if fuzzed else ""
        yield f"<h3>{text(each.name)}, {text(each.version)}</h3>" \
              f"<pre>{text(command(kernel))}</pre><p>{text(kernel['date'])}, " \
              f"{text(suite_of(kernel))}{random}; {text(machine)}; " \
              f"{text(', '.join(kernel['packages']))}</p>"


def page(folder):
    kernels, titles = columns(folder), suite.clauses()
    known = recall(kernels)
    versions = {each.version for each in kernels}
    heads = "".join(f"<th data-words=\"{each.words}\"{each.older}><span>{text(each.name)} "
                    f"{text(each.about['version'])}</span></th>" for each in kernels)
    verdicts = sum(count for each in kernels for name, count in each.kernel["outcomes"].items()
                   if name not in ("UNSUPPORTED", "NOT_RUN"))
    return string.Template((HERE / "page.html").read_text()).substitute(
        summary=f"{len(kernels)} kernels of {len(versions)} released versions, "
                f"{verdicts:,} verdicts.",
        legend=" ".join(f"<span class=\"{MARKS[kind][0]}\">{MARKS[kind][1]}</span> {said}."
                        for kind, said in LEGEND.items()),
        heads=heads, matrix="\n".join(matrix(kernels, titles)),
        kernels="\n".join(map(kernel_row, kernels)), findings="\n".join(finding_rows(kernels)),
        recalled=recalled(known), recall="\n".join(recall_rows(known)),
        suites=text(suites(kernels)), left_out="\n".join(left_out(kernels)),
        commands="\n".join(command_parts(kernels)))
