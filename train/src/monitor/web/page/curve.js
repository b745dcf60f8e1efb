// A curve in bounded memory, by the rule of the server: bins of consecutive points, each two of which become one when
// there are too many.
const MAX_BINS = 1024;

class Curve {
  constructor(series) {
    this.bins = series ? series.bins : [];
    this.perBin = series ? series.per_bin : 1;
  }

  // Values that are no finite number are counted, and not drawn.
  push(step, given) {
    const bad = !(typeof given === "number" && Number.isFinite(given));
    const value = bad ? null : given;
    const last = this.bins[this.bins.length - 1];
    if (last && last.to >= step) this.bins = this.bins.filter((bin) => bin.to < step);
    const point = { from: step, to: step, n: bad ? 0 : 1, n_bad: bad ? 1 : 0, mean: value, min: value, max: value };
    const end = this.bins[this.bins.length - 1];
    if (end && end.n + end.n_bad < this.perBin) {
      Curve.merge(end, point);
      return;
    }
    if (this.bins.length >= MAX_BINS) {
      const half = [];
      for (let k = 0; k + 1 < this.bins.length; k += 2) half.push(Curve.merge(this.bins[k], this.bins[k + 1]));
      this.bins = half;
      this.perBin *= 2;
    }
    this.bins.push(point);
  }

  static merge(first, later) {
    const n = first.n + later.n;
    if (first.n === 0) {
      first.mean = later.mean;
      first.min = later.min;
      first.max = later.max;
    } else if (later.n > 0) {
      first.mean += (later.mean - first.mean) * (later.n / n);
      first.min = Math.min(first.min, later.min);
      first.max = Math.max(first.max, later.max);
    }
    first.to = later.to;
    first.n = n;
    first.n_bad += later.n_bad;
    return first;
  }

  // The bin whose middle is nearest to a step.
  nearest(step) {
    let best = null;
    for (const bin of this.bins) {
      if (!best || Math.abs((bin.from + bin.to) / 2 - step) < Math.abs((best.from + best.to) / 2 - step)) best = bin;
    }
    return best;
  }
}
