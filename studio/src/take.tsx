// What one takes along: the address, the Python that says the same, a picture, a table.
import { useState } from "preact/hooks";
import { type State, written } from "./address";
import { type Answer, type Run, at } from "./api";
import { finishPlots } from "./plot";
import type { Loaded, Session } from "./session";

interface Props {
  session: Session;
  loaded: Loaded;
  answer: Answer | null;
  second: Answer | null;
}

export function Take({ session, loaded, answer, second, onRefused }: Props & { onRefused: () => void }) {
  const [said, setSaid] = useState("");
  const { run, other } = session;
  const copy = async (what: string, text: string) => {
    // Browsers allow it on this machine and over https only.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    setSaid(done ? `${what} copied` : `The browser does not let the page copy; mark the text and copy it.`);
    if (!done && what === "Python") onRefused();
    window.setTimeout(() => setSaid(""), 4000);
  };
  const name = run ? `${run.name}-episode-${loaded.window?.episode ?? 0}-step-${loaded.start}` : "studio";
  return (
    <>
      <span class="small muted" role="status">{said}</span>
      <button type="button" disabled={!answer} title="Copy Python that gives the same numbers" onClick={() => void copy("Python", answer?.python ?? "")}>Copy Python</button>
      <button type="button" title="The address holds all that you chose" onClick={() => void copy("Address", addressOf(session.state))}>Copy address</button>
      <button type="button" disabled={!answer} title="Save the plots as a picture" onClick={() => void picture().then((blob) => blob && save(blob, `${name}.png`))}>PNG</button>
      <button
        type="button" disabled={!answer} title="Save all numbers of the window as a table"
        onClick={() => run && answer && save(new Blob([table(run, loaded, answer, other, second)], { type: "text/csv" }), `${name}.csv`)}
      >
        CSV
      </button>
    </>
  );
}

function addressOf(state: State): string {
  return `${location.origin}${location.pathname}#${written(state)}`;
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Every feature at every step, a row each. */
function table(run: Run, loaded: Loaded, answer: Answer, other: Run | null, second: Answer | null): string {
  const head = ["step", "modality", "feature", "recorded", "visible", "prediction", "expected_error"];
  const rows: (string | number | null)[][] = [other ? [...head, `prediction_${other.name}`] : head];
  const { start, length } = loaded.window ?? { start: 0, length: 0 };
  for (const m of run.modalities) {
    const told = answer.modalities[m.name];
    for (let step = 0; step < length; step++) {
      for (const [i, feature] of m.features.entries()) {
        const row = [
          start + step, m.name, feature, at(loaded.window?.values[m.name] ?? [], step, i), told?.visible[step] ?? "0",
          at(told?.prediction ?? [], step, i), told?.deviation?.[step]?.[i] ?? null,
        ];
        rows.push(other ? [...row, at(second?.modalities[m.name]?.prediction ?? [], step, i)] : row);
      }
    }
  }
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** Quoted where need be; a spreadsheet must not take a name for a formula. */
function field(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const COLUMNS = 3;
const GAP = 16;
const TITLE = 22;

/** All plots as they stand on the page, on one canvas. */
async function picture(): Promise<Blob | null> {
  finishPlots();
  await Promise.resolve(); // uPlot draws in a microtask
  const plots = [...document.querySelectorAll<HTMLElement>("figure.plot")].flatMap((figure) => {
    const canvas = figure.querySelector("canvas");
    return canvas && canvas.width > 0 ? [{ canvas, text: figure.querySelector("figcaption")?.innerText.replace(/\s+/g, " ") ?? "" }] : [];
  });
  if (plots.length === 0) return null;
  const ratio = window.devicePixelRatio || 1;
  const style = getComputedStyle(document.documentElement);
  const wide = Math.max(...plots.map((p) => p.canvas.width));
  const tall = Math.max(...plots.map((p) => p.canvas.height)) + (TITLE + GAP) * ratio;
  const columns = Math.min(COLUMNS, plots.length);
  const sheet = document.createElement("canvas");
  sheet.width = columns * (wide + GAP * ratio) + GAP * ratio;
  sheet.height = Math.ceil(plots.length / columns) * tall + GAP * ratio;
  const pen = sheet.getContext("2d");
  if (!pen) return null;
  pen.fillStyle = style.getPropertyValue("--panel").trim();
  pen.fillRect(0, 0, sheet.width, sheet.height);
  pen.fillStyle = style.getPropertyValue("--ink").trim();
  pen.font = `${12 * ratio}px system-ui, sans-serif`;
  plots.forEach(({ canvas, text }, i) => {
    const x = GAP * ratio + (i % columns) * (wide + GAP * ratio);
    const y = GAP * ratio + Math.floor(i / columns) * tall;
    pen.fillText(text, x, y + 12 * ratio, wide);
    pen.drawImage(canvas, x, y + TITLE * ratio);
  });
  return new Promise((done) => sheet.toBlob(done, "image/png"));
}
