// The tokens of the window: modalities by steps, to be shown and hidden.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

export interface Place {
  row: number;
  step: number;
}

export interface GridProps {
  names: string[];
  /** The number of the window's first step within the episode. */
  start: number;
  steps: number;
  visible: boolean[][];
  present: boolean[][];
  /** What the mask asks for. */
  wanted: boolean[][];
  changed: boolean[][];
  selected: Place;
  onSelect: (place: Place) => void;
  onShow: (places: Place[], shown: boolean) => void;
}

/** Cells that are clicked, painted over, or walked with the arrow keys. */
export function Grid(props: GridProps) {
  const holder = useRef<HTMLDivElement>(null);
  const painting = useRef<boolean | null>(null);
  const last = useRef<Place | null>(null);
  const walked = useRef(false);
  const { names, steps, selected } = props;

  useEffect(() => {
    const stop = () => { painting.current = null; };
    window.addEventListener("pointerup", stop);
    window.addEventListener("pointercancel", stop);
    return () => {
      window.removeEventListener("pointerup", stop);
      window.removeEventListener("pointercancel", stop);
    };
  }, []);
  useLayoutEffect(() => {
    if (!walked.current) return;
    walked.current = false;
    cellAt(holder.current, selected)?.focus();
  }, [selected.row, selected.step]);

  const show = (places: Place[], shown: boolean) => {
    const others = places.filter(({ row, step }) => props.present[row]?.[step] && props.visible[row]?.[step] !== shown);
    if (others.length > 0) props.onShow(others, shown);
  };
  const down = (event: PointerEvent) => {
    const place = placeOf(event.target);
    if (!place || event.button !== 0) return;
    (event.target as HTMLElement).releasePointerCapture?.(event.pointerId);
    props.onSelect(place);
    last.current = place;
    if (!props.present[place.row]?.[place.step]) return;
    painting.current = !props.visible[place.row]?.[place.step];
    show([place], painting.current);
  };
  const move = (event: PointerEvent) => {
    if (painting.current === null) return;
    const place = placeOf(document.elementFromPoint(event.clientX, event.clientY));
    if (!place || !last.current) return;
    show(between(last.current, place), painting.current);
    last.current = place;
  };
  const key = (event: KeyboardEvent) => {
    const place = placeOf(event.target);
    if (!place) return;
    if (event.key === " " || event.key === "Enter") {
      event.preventDefault();
      show([place], !props.visible[place.row]?.[place.step]);
      return;
    }
    const next = walk(place, event.key, names.length, steps);
    if (!next) return;
    event.preventDefault();
    walked.current = true;
    if (event.shiftKey) show([next], props.visible[place.row]?.[place.step] ?? false);
    props.onSelect(next);
  };

  const width = steps > 12 ? "minmax(0.72rem, 1fr)" : "minmax(1.05rem, 1fr)";
  return (
    <div class="grid-scroll">
      <div
        ref={holder}
        class="grid"
        role="grid"
        aria-label="What the model may see: modalities by time steps. Arrows move, space shows or hides, shift with an arrow paints."
        style={{ gridTemplateColumns: `max-content repeat(${steps}, ${width})` }}
        onPointerDown={down}
        onPointerMove={move}
        onKeyDown={key}
      >
        <Header start={props.start} steps={steps} />
        {names.map((name, row) => (
          <Row key={name} {...props} name={name} row={row} />
        ))}
      </div>
    </div>
  );
}

function Header({ start, steps }: { start: number; steps: number }) {
  const every = steps <= 12 ? 1 : steps <= 30 ? 5 : 10;
  const labels = Array.from({ length: steps }, (_, i) => start + i);
  return (
    <div role="row" style={{ display: "contents" }}>
      <span class="who muted small" role="columnheader">step</span>
      {labels.map((step) => (
        <span class="when" role="columnheader" key={step}>{step % every === 0 ? step : ""}</span>
      ))}
    </div>
  );
}

function Row(props: GridProps & { name: string; row: number }) {
  const { name, row, selected } = props;
  const cells = Array.from({ length: props.steps }, (_, step) => {
    const there = props.present[row]?.[step] ?? false;
    const shown = there && (props.visible[row]?.[step] ?? false);
    const changed = shown && (props.changed[row]?.[step] ?? false);
    const asked = there && !shown && (props.wanted[row]?.[step] ?? false);
    const chosen = selected.row === row && selected.step === step;
    const state = there ? (shown ? (changed ? "visible, changed" : "visible") : asked ? "hidden, asked for" : "hidden") : "absent in the data";
    const looks = ["cell", there ? (shown ? "shown" : "") : "absent", changed && "changed", asked && "wanted", chosen && "selected"];
    return (
      <button
        type="button"
        role="gridcell"
        key={step}
        class={looks.filter(Boolean).join(" ")}
        data-row={row}
        data-step={step}
        tabIndex={chosen ? 0 : -1}
        aria-selected={shown}
        aria-disabled={!there}
        aria-label={`${name}, step ${props.start + step}: ${state}`}
        title={`${name}, step ${props.start + step}: ${state}`}
      />
    );
  });
  return (
    <div role="row" style={{ display: "contents" }}>
      <span class="who" role="rowheader" title={name}>{name}</span>
      {cells}
    </div>
  );
}

function placeOf(target: EventTarget | null): Place | null {
  if (!(target instanceof HTMLElement) || target.dataset.row === undefined) return null;
  return { row: Number(target.dataset.row), step: Number(target.dataset.step) };
}

function cellAt(holder: HTMLElement | null, place: Place): HTMLElement | null {
  return holder?.querySelector(`[data-row="${place.row}"][data-step="${place.step}"]`) ?? null;
}

/** A fast pointer skips cells: those that it passed. */
function between(from: Place, to: Place): Place[] {
  const length = Math.max(Math.abs(to.row - from.row), Math.abs(to.step - from.step), 1);
  return Array.from({ length }, (_, i) => ({
    row: Math.round(from.row + ((to.row - from.row) * (i + 1)) / length),
    step: Math.round(from.step + ((to.step - from.step) * (i + 1)) / length),
  }));
}

function walk(place: Place, key: string, rows: number, steps: number): Place | null {
  const { row, step } = place;
  switch (key) {
    case "ArrowLeft": return { row, step: Math.max(step - 1, 0) };
    case "ArrowRight": return { row, step: Math.min(step + 1, steps - 1) };
    case "ArrowUp": return { row: Math.max(row - 1, 0), step };
    case "ArrowDown": return { row: Math.min(row + 1, rows - 1), step };
    case "Home": return { row, step: 0 };
    case "End": return { row, step: steps - 1 };
    default: return null;
  }
}
