// A discrete modality over the window: a bar per class and step, as high as its probability.
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Numbers } from "./plot";

export interface ClassesProps {
  name: string;
  note: string;
  /** Names of the classes. */
  classes: string[];
  steps: number[];
  truth: Numbers;
  shown: Numbers;
  changed: boolean[];
  /** For each run, step -> class -> probability; null where the class was given. */
  runs: ((Numbers | null)[] | null)[];
  theme: string;
  /** Another class was clicked at a visible step. */
  onPick: (place: number, value: number) => void;
}

const MOST = 12;
const ROW = 17;
const LEFT = 64;
const FOOT = 16;

export function Classes(props: ClassesProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const latest = useRef(props);
  latest.current = props;
  const rows = likeliest(props);
  const height = rows.length * ROW + FOOT;
  useLayoutEffect(() => { if (canvas.current) draw(canvas.current, latest.current, rows, height); });
  useLayoutEffect(() => {
    const drawn = canvas.current;
    if (!drawn) return;
    const watch = new ResizeObserver(() => {
      const now = likeliest(latest.current);
      draw(drawn, latest.current, now, now.length * ROW + FOOT);
    });
    watch.observe(drawn);
    return () => watch.disconnect();
  }, []);
  const pick = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * props.steps.length);
    const chosen = rows[Math.floor((event.clientY - box.top) / ROW)];
    if (chosen !== undefined && (props.shown[place] ?? null) !== null) props.onPick(place, chosen);
  };
  const hidden = props.shown.filter((v) => v === null).length;
  const more = props.classes.length - rows.length;
  return (
    <figure class="plot" data-feature={props.name}>
      <figcaption>
        <b>{props.name}</b>
        <span class="muted">{props.note}</span>
      </figcaption>
      <canvas
        ref={canvas}
        class="classes"
        style={{ height: `${height}px` }}
        role="img"
        aria-label={`${props.name}: ${props.classes.length} classes, ${props.steps.length} steps, ${hidden} hidden. ${props.note}`}
        onClick={pick}
      />
      {more > 0 && <p class="small muted">{more} unlikely classes are not drawn</p>}
    </figure>
  );
}

/** The classes worth a row: all if they are few, else those that occur and the likeliest. */
function likeliest(props: ClassesProps): number[] {
  const all = props.classes.map((_, i) => i);
  if (all.length <= MOST) return all;
  const weight = all.map(() => 0);
  const add = (value: number | null, by: number) => {
    if (value !== null) weight[value] = (weight[value] ?? 0) + by;
  };
  for (const list of [props.truth, props.shown]) for (const value of list) add(value, 10);
  for (const run of props.runs) for (const row of run ?? []) row?.forEach((p, i) => add(i, p ?? 0));
  return all.sort((a, b) => (weight[b] ?? 0) - (weight[a] ?? 0)).slice(0, MOST).sort((a, b) => a - b);
}

function draw(canvas: HTMLCanvasElement, props: ClassesProps, rows: number[], height: number): void {
  const width = canvas.clientWidth;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  if (!pen || width === 0) return;
  pen.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const wide = (width - LEFT) / props.steps.length;
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "middle";
  rows.forEach((which, row) => {
    pen.fillStyle = of("muted");
    pen.textAlign = "right";
    pen.fillText(short(props.classes[which] ?? ""), LEFT - 5, row * ROW + ROW / 2);
    props.steps.forEach((_, place) => {
      const x = LEFT + place * wide + 1;
      const y = row * ROW + 1;
      const box = [x, y, Math.max(wide - 2, 1), ROW - 2] as const;
      pen.fillStyle = of("soft");
      pen.fillRect(...box);
      drawCell(pen, props, which, place, box, of);
    });
  });
  drawSteps(pen, props, wide, height, of("muted"));
}

type Box = readonly [number, number, number, number];

function drawCell(pen: CanvasRenderingContext2D, props: ClassesProps, which: number, place: number, box: Box, of: (name: string) => string): void {
  const [x, y, w, h] = box;
  if (props.shown[place] === which) {
    pen.fillStyle = of(props.changed[place] ? "changed" : "shown");
    pen.fillRect(...box);
  }
  const said = props.runs.filter((run) => run !== null);
  said.forEach((run, i) => {
    const p = run?.[place]?.[which] ?? 0;
    pen.fillStyle = of(i === 0 ? "answer" : "second");
    const part = w / said.length;
    pen.fillRect(x + i * part, y + h * (1 - p), Math.max(part - (i > 0 ? 0 : said.length - 1), 1), h * p);
  });
  if (props.truth[place] === which) {
    pen.strokeStyle = of("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(x + 0.75, y + 0.75, Math.max(w - 1.5, 1), h - 1.5);
  }
}

function drawSteps(pen: CanvasRenderingContext2D, props: ClassesProps, wide: number, height: number, colour: string): void {
  const every = Math.max(1, Math.ceil(28 / wide));
  pen.fillStyle = colour;
  pen.textAlign = "center";
  props.steps.forEach((step, place) => {
    if (place % every === 0) pen.fillText(String(step), LEFT + (place + 0.5) * wide, height - FOOT / 2);
  });
}

function short(name: string): string {
  return name.length > 10 ? `${name.slice(0, 9)}…` : name;
}
