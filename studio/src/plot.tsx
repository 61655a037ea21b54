// One feature over the window: truth, what was visible, predictions and how far off they may be.
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { number } from "./format";

export type Numbers = (number | null)[];

export interface Curve {
  /** Name of a CSS colour variable. */
  colour: "answer" | "second" | "copying" | "line";
  values: Numbers;
  low?: Numbers;
  high?: Numbers;
}

export interface PlotProps {
  name: string;
  unit: string;
  /** The number of each step within the episode. */
  steps: number[];
  truth: Numbers;
  /** What was shown to the model, null where nothing was. */
  shown: Numbers;
  changed: boolean[];
  curves: Curve[];
  note: string;
  theme: string;
  /** A visible value was dragged: the place within the window and its new value. */
  onDrag: (place: number, value: number) => void;
}

const HEIGHT = 118;
const REACH = 16;
/** So far beyond what is in sight plots are drawn, that none is seen empty. */
const NEARLY = "200px";

const all = new Set<Held>();

/** Draw also those plots that are out of sight. */
export function finishPlots(): void {
  for (const plot of all) plot.finish();
}

/** Draws one feature; visible values can be dragged up and down. */
export function Plot(props: PlotProps) {
  const holder = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  const held = useRef<Held | null>(null);
  latest.current = props;
  const kinds = props.curves.map((c) => c.colour + (c.low ? "±" : "")).join();
  useLayoutEffect(() => {
    if (!holder.current) return;
    const drawn = new Held(holder.current, latest);
    held.current = drawn;
    return () => drawn.destroy();
  }, [kinds, props.theme, props.steps.length]);
  useLayoutEffect(() => held.current?.draw());
  return (
    <figure class="plot" data-feature={props.name}>
      <figcaption>
        <b>{props.name}</b>
        <span class="muted">{props.note}</span>
      </figcaption>
      <div ref={holder} role="img" aria-label={spoken(props)} />
    </figure>
  );
}

function spoken(props: PlotProps): string {
  const hidden = props.shown.filter((v) => v === null).length;
  return `${props.name}: ${props.steps.length} steps, ${hidden} hidden. ${props.note}`;
}

interface Latest {
  current: PlotProps;
}

/** The drawing of one plot, which outlives the answers that pass through it. */
class Held {
  private readonly plot: uPlot;
  private readonly watch: ResizeObserver;
  private readonly sight: IntersectionObserver;
  /** Whether it can be seen, or nearly; what cannot is drawn when it comes into sight. */
  private seen = true;
  private stale = false;
  private range: [number, number] | null = null;
  private dragged: number | null = null;

  constructor(
    private readonly holder: HTMLElement,
    private readonly latest: Latest,
  ) {
    this.plot = new uPlot(this.options(), this.data(), holder);
    this.watch = new ResizeObserver(() => {
      const width = holder.clientWidth;
      if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    });
    this.watch.observe(holder);
    this.sight = new IntersectionObserver((changes) => {
      this.seen = changes.at(-1)?.isIntersecting ?? true;
      if (this.seen && this.stale) this.draw();
    }, { rootMargin: NEARLY });
    this.sight.observe(holder);
    all.add(this);
    this.listen();
  }

  /** Draw what is new, if it can be seen; nothing if it is what is drawn already. */
  draw(): void {
    this.stale = !this.seen;
    if (this.stale) return;
    const data = this.data();
    if (!same(data, this.plot.data)) this.plot.setData(data);
  }

  /** Draw what is new, seen or not: a picture of all plots is wanted. */
  finish(): void {
    if (this.stale) this.plot.setData(this.data());
    this.stale = false;
  }

  destroy(): void {
    all.delete(this);
    this.watch.disconnect();
    this.sight.disconnect();
    this.plot.destroy();
  }

  private data(): uPlot.AlignedData {
    const { steps, truth, curves, shown, changed } = this.latest.current;
    const rows: Numbers[] = [truth];
    for (const curve of curves) {
      if (curve.low && curve.high) rows.push(curve.high, curve.low);
      rows.push(curve.values);
    }
    rows.push(shown.map((v, i) => (changed[i] ? null : v)));
    rows.push(shown.map((v, i) => (changed[i] ? v : null)));
    return [steps, ...rows] as uPlot.AlignedData;
  }

  private options(): uPlot.Options {
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const series: uPlot.Series[] = [{}, line(of("truth"), 1.6)];
    const bands: uPlot.Band[] = [];
    for (const curve of this.latest.current.curves) {
      if (curve.low) {
        bands.push({ series: [series.length, series.length + 1], fill: of(`${curve.colour}-band`) });
        series.push(line("transparent", 0), line("transparent", 0));
      }
      series.push(answer(curve.colour, of(curve.colour)));
    }
    series.push(points(of("shown"), of("shown"), 7));
    series.push(points(of("changed"), of("ink"), 10));
    const axis = {
      stroke: of("muted"),
      grid: { stroke: of("rule"), width: 1 },
      ticks: { show: false },
      font: "10px system-ui, sans-serif",
    };
    return {
      width: Math.max(this.holder.clientWidth, 60),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      padding: [6, 8, 0, 0],
      scales: { x: { time: false, range: sides }, y: { range: (_, low, high) => this.reach(low, high) } },
      axes: [
        { ...axis, size: 18, gap: 2, space: 40, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        { ...axis, size: 44, gap: 3, space: 24, values: (_, ticks) => ticks.map((t) => number(t)) },
      ],
      series,
      bands,
    };
  }

  /** The height of the plot; it stays where it is while a value is dragged. */
  private reach(low: number | null, high: number | null): [number, number] {
    if (this.dragged !== null && this.range) return this.range;
    const [a, b] = low === null || high === null ? [0, 1] : [low, high];
    const room = Math.max((b - a) * 0.12, Math.abs(b) * 1e-3, 1e-6);
    this.range = [a - room, b + room];
    return this.range;
  }

  private listen(): void {
    const over = this.plot.over;
    over.addEventListener("pointermove", (event) => {
      if (this.dragged === null) {
        over.classList.toggle("grab", this.near(event) !== null);
        return;
      }
      event.preventDefault();
      const value = this.plot.posToVal(event.clientY - over.getBoundingClientRect().top, "y");
      this.latest.current.onDrag(this.dragged, Number(value.toPrecision(5)));
    });
    over.addEventListener("pointerdown", (event) => {
      this.dragged = this.near(event);
      if (this.dragged === null) return;
      event.preventDefault();
      over.setPointerCapture(event.pointerId);
    });
    const drop = () => {
      if (this.dragged === null) return;
      this.dragged = null;
      this.plot.setData(this.data()); // its height is free again
    };
    over.addEventListener("pointerup", drop);
    over.addEventListener("pointercancel", drop);
    over.addEventListener("touchstart", (e) => this.dragged !== null && e.preventDefault(), { passive: false });
  }

  /** The visible value under the pointer, if there is one. */
  private near(event: PointerEvent): number | null {
    const { shown, steps } = this.latest.current;
    const box = this.plot.over.getBoundingClientRect();
    let best: number | null = null;
    let distance = REACH;
    shown.forEach((value, place) => {
      if (value === null) return;
      const x = this.plot.valToPos(steps[place] ?? 0, "x") - (event.clientX - box.left);
      const y = this.plot.valToPos(value, "y") - (event.clientY - box.top);
      const away = Math.hypot(x, y);
      if (away < distance) [best, distance] = [place, away];
    });
    return best;
  }
}

/** Whether two drawings show the same numbers. */
function same(one: uPlot.AlignedData, other: uPlot.AlignedData): boolean {
  return one.length === other.length && one.every((row, i) => {
    const before = other[i];
    return before !== undefined && row.length === before.length && Array.from(row).every((v, k) => v === before[k]);
  });
}

function sides(_: uPlot, low: number, high: number): [number, number] {
  const room = Math.max((high - low) * 0.03, 0.4);
  return [low - room, high + room];
}

function line(stroke: string, width: number): uPlot.Series {
  return { stroke, width, points: { show: false } };
}

function answer(colour: Curve["colour"], stroke: string): uPlot.Series {
  if (colour === "answer") return { stroke, width: 2, points: { show: false } };
  const dash = colour === "second" ? [6, 4] : [2, 4];
  return { stroke, width: colour === "second" ? 2 : 1.5, dash, points: { show: false } };
}

function points(fill: string, stroke: string, size: number): uPlot.Series {
  return { stroke, width: 0, paths: () => null, points: { show: true, size, fill, stroke, width: 1 } };
}
