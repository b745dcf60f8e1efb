"""What follows from measurements: whose losses differ, what failed, how far the goals are, and the table for people."""

# Whose figures are beside those of retape.
PEERS = ["torch", "jax", "torch.compile"]

# Goals on an H200. Missing one is no failure.
GOALS = [
    ("elementwise, of the bandwidth of copies by the driver", 0.85),
    ("elementwise with fast math, of the bandwidth of copies by the driver", 0.85),
    ("negate, of the bandwidth of copies by the driver", 0.85),
    ("matmul bf16 4096, of the speed of torch.matmul", 0.50),
    ("matmul f32 4096, of the speed of torch.matmul", 0.70),
    ("replayed digit step, of the speed of torch.compile", 1.0),
    ("cold first call of the digit step, seconds at most", 0.5),
]


def bound(workload):
    """How far losses may be from each other, in parts of them."""
    for part, parts in (("bf16", 2e-2), ("fast", 1e-2), ("tf32", 3e-3)):
        if part in workload:
            return parts
    return 1e-3


def near(workload, one, other):
    return abs(one - other) <= bound(workload) * max(abs(other), 1e-3)


def compare(workload, found):
    """Says for each loss whether it is that of retape, and for that of retape whether it is that of the processor."""
    programs, expected = found["programs"], found["expected"]
    ours = programs.get("retape", {}).get("loss_after_5")
    for own in programs.values():
        if ours is not None and "loss_after_5" in own:
            own["agrees"] = near(workload, own["loss_after_5"], ours)
    on_device = expected.get("loss_on_device", ours)
    if "loss" in expected and on_device is not None:
        expected["agrees"] = near(workload, on_device, expected["loss"])


def failures_of(workload, found):
    """What is wrong with a workload, in words. A peer that cannot do it is not."""
    own, expected, wrong = found["programs"].get("retape", {"failed": "not run"}), found["expected"], []
    if "failed" in own:
        wrong.append(f"retape: {own['failed']}")
    if "failed" in expected:
        wrong.append(f"on the processor: {expected['failed']}")
    if expected.get("agrees") is False:
        on_device = expected.get("loss_on_device", own.get("loss_after_5"))
        wrong.append(f"the loss is {on_device}, and {expected['loss']} by the processor")
    for name, peer in found["programs"].items():
        if peer.get("agrees") is False:
            wrong.append(f"the loss is {own['loss_after_5']}, and {peer['loss_after_5']} by {name}")
    return [f"{workload}: {what}" for what in wrong]


def failures(results):
    """Everything that is wrong."""
    wrong = [f"check {name}: {seen['failed']}" for name, seen in results.get("checks", {}).items() if "failed" in seen]
    wrong += [f"cold, {kind}: {seen['failed']}" for kind, seen in results.get("cold", {}).items() if "failed" in seen]
    for workload, found in results["workloads"].items():
        wrong += failures_of(workload, found)
    return wrong


def goals(results):
    """How far each goal is, as far as what it needs was measured."""
    def figure(workload, program, key):
        return results["workloads"].get(workload, {}).get("programs", {}).get(program, {}).get(key)

    # Both ask the driver; torch.compile and JAX have kernels for it.
    copies = [speed for name in ("retape", "torch") if (speed := figure("copy", name, "bytes_per_s"))]
    of_copy = lambda workload: (speed := figure(workload, "retape", "bytes_per_s")) and copies and speed / max(copies)
    reached = [
        of_copy("elementwise"),
        of_copy("elementwise_fast"),
        of_copy("negate"),
        figure("matmul_bf16_4096", "torch", "times_of_retape"),
        figure("matmul_f32_4096", "torch", "times_of_retape"),
        figure("digits_train", "torch.compile", "times_of_retape"),
        results.get("cold", {}).get("empty", {}).get("cold_s"),
    ]
    return [{"what": what, "goal": goal, "reached": value}
            for (what, goal), value in zip(GOALS, reached, strict=True) if value]


def rows(results):
    """A line for each workload: milliseconds of a step by each program, and how many times ours peers take."""
    names = ["retape", *PEERS]
    yield f"{'milliseconds a step':<22}" + "".join(f"{name:>16}" for name in names) + "   peers / retape"
    for workload, found in results["workloads"].items():
        cells, ratios = [], []
        for name in names:
            own = found["programs"].get(name, {})
            mark = "" if own.get("agrees", True) else " !"
            cells.append(f"{own['ms']:.4f}{mark}" if "ms" in own else "-")
            if "times_of_retape" in own:
                ratios.append(f"{name} {own['times_of_retape']:.2f}")
        yield f"{workload:<22}" + "".join(f"{cell:>16}" for cell in cells) + "   " + ", ".join(ratios)


def speeds(results):
    for workload, found in results["workloads"].items():
        for name, own in found["programs"].items():
            for unit, label, scale in (("bytes_per_s", "GB/s", 1e9), ("operations_per_s", "TFLOP/s", 1e12)):
                if unit in own:
                    yield f"  {workload} {name}: {own[unit] / scale:.1f} {label}"


def reasons(results):
    """Why figures are not there."""
    seen = {}
    for workload, found in results["workloads"].items():
        for name, own in found["programs"].items():
            if "failed" in own:
                seen.setdefault((name, own["failed"][:160]), []).append(workload)
    for (name, reason), workloads in sorted(seen.items()):
        where = ", ".join(workloads) if len(workloads) < len(results["workloads"]) else "any workload"
        yield f"  not measured, {name}, {where}: {reason}"
    for workload, reason in results["left_out"].items():
        yield f"  left out, {workload}: {reason}"


def table(results):
    """The figures for people."""
    device = results["device"]
    lines = [f"{device['name']}, driver {results['driver']}, commit {results['commit']}, {results['date']}"]
    if results.get("simulated"):
        lines.append("On the stand-in driver and tiny sizes: the times mean nothing.")
    lines += [*rows(results), *speeds(results), *reasons(results)]
    for goal in results["goals"]:
        lines.append(f"goal on an H200: {goal['what']}: {goal['goal']}, reached {goal['reached']:.3f}")
    for kind, sample in results.get("cold", {}).items():
        lines.append(f"cold first step, {kind} cache of code: {sample}")
    for name, seen in results.get("checks", {}).items():
        lines.append(f"check {name}: {seen}")
    return "\n".join(lines + [f"failed: {what}" for what in results["failures"]])
