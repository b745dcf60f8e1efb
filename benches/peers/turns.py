"""The figures of lists that are measured in turns, in FOLDER/LIST.SYSTEM.jsonl."""
import glob, json, os


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
