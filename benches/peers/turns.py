"""The figures of lists that are measured in turns, in FOLDER/LIST.SYSTEM.jsonl."""
import glob, json, math, os, time

# Lines of which a table tells, by their ratios.
ROWS = 30


def best_runs(folder, kind, key):
    """For each name under `key` and each system, the line with the least time."""
    best = {}
    for path in sorted(glob.glob(os.path.join(folder, f"{kind}.*.jsonl"))):
        system = os.path.basename(path).split(".")[1]
        for text in open(path):
            line = json.loads(text)
            runs = best.setdefault(line[key], {})
            if system not in runs or line["us"] < runs[system]["us"]:
                runs[system] = line
    return best


def table(folder, kind, key, plural):
    """Prints how retape stands beside the faster peer, and the lines of the largest ratios."""
    rows, apart = [], []
    for name, runs in best_runs(folder, kind, key).items():
        if "retape" not in runs or len(runs) == 1:
            continue
        us, peer = min((r["us"], s) for s, r in runs.items() if s != "retape")
        rows.append((runs["retape"]["us"] / us, name, runs["retape"]["us"], us, peer))
        energies = [r["energy"] for r in runs.values()]
        if max(energies) - min(energies) > 1e-3 * max(energies):
            apart.append(name)
    rows.sort(reverse=True)
    ratios = [row[0] for row in rows]
    above = lambda limit: sum(ratio > limit for ratio in ratios)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(rows)} {plural}: geometric mean {mean:.2f}, median {sorted(ratios)[len(rows) // 2]:.2f}; "
          f"{above(1)} above 1, {above(1.2)} above 1.2, {above(2)} above 2.\n")
    print(f"| {key} | retape | peer | | ratio |\n|---|---|---|---|---|")
    for ratio, name, us, of_peer, peer in rows[:ROWS]:
        print(f"| {name} | {us:.0f} us | {of_peer:.0f} us | {peer} | {ratio:.2f} |")
    print("\n" + (f"Results differ: {', '.join(apart)}." if apart else "Results agree."))


def times_of(step, samples, seconds, most=math.inf):
    """The times of a step in microseconds, in rising order: so many at least, and for so long, unless that takes the most."""
    times, begin = [], time.perf_counter()
    passed = lambda: time.perf_counter() - begin
    while (len(times) < samples or passed() < seconds) and passed() < most:
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)
