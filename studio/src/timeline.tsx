// The whole episode at a glance: a curve, where data are absent, and the window that is asked about.
import { useEffect, useRef } from "preact/hooks";
import { number } from "./format";

export interface TimelineProps {
  /** What is drawn: the name of the returns or rewards. */
  label: string;
  /** Steps of the episode. */
  length: number;
  /** The curve, evenly spaced over the episode; null where absent. */
  curve: (number | null)[];
  /** Stretches [from, to) in which something is absent. */
  absent: [number, number][];
  start: number;
  steps: number;
  theme: string;
  onScrub: (start: number) => void;
}

const HEIGHT = 68;
/** Room below the strip, for the numbers of the steps. */
const FOOT = 14;

/** A strip to drag the window along; the arrow keys move it, too. */
export function Timeline(props: TimelineProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const latest = useRef(props);
  const grip = useRef<number | null>(null);
  latest.current = props;
  const last = Math.max(props.length - props.steps, 0);

  useEffect(() => { if (canvas.current) draw(canvas.current, latest.current); });
  useEffect(() => {
    const drawn = canvas.current;
    if (!drawn) return;
    const watch = new ResizeObserver(() => draw(drawn, latest.current));
    watch.observe(drawn);
    return () => watch.disconnect();
  }, []);

  const stepAt = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * props.length;
  };
  const scrub = (start: number) => {
    const next = Math.min(Math.max(Math.round(start), 0), last);
    if (next !== props.start) props.onScrub(next);
  };
  const down = (event: PointerEvent) => {
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    const at = stepAt(event);
    const inside = at >= props.start && at <= props.start + props.steps;
    grip.current = inside ? at - props.start : props.steps / 2;
    if (!inside) scrub(at - props.steps / 2);
  };
  const move = (event: PointerEvent) => {
    if (grip.current !== null) scrub(stepAt(event) - grip.current);
  };
  const drop = () => { grip.current = null; };
  const key = (event: KeyboardEvent) => {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: props.steps, PageDown: -props.steps }[event.key];
    if (way === undefined && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    scrub(event.key === "Home" ? 0 : event.key === "End" ? last : props.start + (way ?? 0));
  };

  return (
    <div class="timeline">
      <p class="small muted">{about(props)}</p>
      <canvas
        ref={canvas}
        role="slider"
        tabIndex={0}
        aria-label="Window within the episode"
        aria-valuemin={0}
        aria-valuemax={last}
        aria-valuenow={props.start}
        aria-valuetext={`steps ${props.start} to ${props.start + props.steps - 1} of ${props.length}`}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={drop}
        onPointerCancel={drop}
        onKeyDown={key}
      />
    </div>
  );
}

/** What the strip shows. It stands above it: on it, it would hide the curve. */
function about(props: TimelineProps): string {
  const known = props.curve.filter((v): v is number => v !== null);
  const hatched = props.absent.length > 0 ? "hatched: something is absent" : "";
  if (known.length === 0) return ["no rewards or returns to draw", hatched].filter(Boolean).join("; ");
  const [low, high] = span(known);
  const range = low === high ? number(low) : `${number(low)} to ${number(high)}`;
  return [`${props.label}, ${range}`, hatched].filter(Boolean).join("; ");
}

function span(known: number[]): [number, number] {
  return [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
}

function draw(canvas: HTMLCanvasElement, props: TimelineProps): void {
  const width = canvas.clientWidth;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = HEIGHT * ratio;
  const pen = canvas.getContext("2d");
  if (!pen || width === 0) return;
  pen.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const x = (step: number) => (step / Math.max(props.length, 1)) * width;
  const base = HEIGHT - FOOT;

  pen.fillStyle = of("soft");
  pen.fillRect(0, 0, width, base);
  pen.fillStyle = hatch(pen, of("absent"), of("soft"));
  for (const [from, to] of props.absent) pen.fillRect(x(from), 0, Math.max(x(to) - x(from), 1), base);
  drawCurve(pen, props, of("muted"), x, base);
  pen.fillStyle = of("shown");
  pen.globalAlpha = 0.22;
  const wide = Math.max(x(props.start + props.steps) - x(props.start), 3);
  pen.fillRect(x(props.start), 0, wide, base);
  pen.globalAlpha = 1;
  pen.strokeStyle = of("shown");
  pen.lineWidth = 2;
  pen.strokeRect(x(props.start) + 1, 1, Math.max(wide - 2, 1), base - 2);
  drawFoot(pen, props, of("muted"), width);
}

function drawCurve(pen: CanvasRenderingContext2D, props: TimelineProps, colour: string, x: (s: number) => number, base: number): void {
  const known = props.curve.filter((v): v is number => v !== null);
  if (known.length === 0) return;
  const [low, high] = span(known);
  const tall = high - low || 1;
  const y = (v: number) => base - 8 - ((v - low) / tall) * (base - 16);
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.lineJoin = "round";
  pen.beginPath();
  let open = false;
  props.curve.forEach((value, i) => {
    if (value === null) { open = false; return; }
    const at = x(((i + 0.5) / props.curve.length) * props.length);
    if (open) pen.lineTo(at, y(value));
    else pen.moveTo(at, y(value));
    open = true;
  });
  pen.stroke();
}

function drawFoot(pen: CanvasRenderingContext2D, props: TimelineProps, colour: string, width: number): void {
  pen.fillStyle = colour;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "bottom";
  pen.textAlign = "left";
  pen.fillText("step 0", 0, HEIGHT);
  pen.textAlign = "right";
  pen.fillText(String(props.length - 1), width, HEIGHT);
  pen.textAlign = "center";
  const middle = ((props.start + props.steps / 2) / Math.max(props.length, 1)) * width;
  const text = `${props.start}–${props.start + props.steps - 1}`;
  if (middle > 70 && middle < width - 70) pen.fillText(text, middle, HEIGHT);
}

function hatch(pen: CanvasRenderingContext2D, colour: string, ground: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const brush = tile.getContext("2d");
  if (!brush) return colour;
  brush.fillStyle = ground;
  brush.fillRect(0, 0, 8, 8);
  brush.strokeStyle = colour;
  brush.lineWidth = 1.5;
  brush.beginPath();
  for (const shift of [-8, 0, 8]) {
    brush.moveTo(shift, 8);
    brush.lineTo(shift + 8, 0);
  }
  brush.stroke();
  return pen.createPattern(tile, "repeat") ?? colour;
}
