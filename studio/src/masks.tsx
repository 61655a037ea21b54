// What the model may see: a mask by name, a draw of the training's, or one's own.
import { useState } from "preact/hooks";
import type { Run } from "./api";
import { NumberField } from "./fields";
import { exact, number } from "./format";
import { Grid, type Place } from "./grid";
import type { Loaded, Session, Update } from "./session";

interface Props {
  session: Session;
  loaded: Loaded;
}

export function Masks({ session, loaded }: Props) {
  const { state, update, run } = session;
  const [selected, setSelected] = useState<Place>({ row: 0, step: 0 });
  if (!run) return null;
  const { mask, visible, window, edits } = loaded;
  const names = run.modalities.map((m) => m.name);
  const rows = (of: (name: string) => boolean[]) => names.map(of);
  const steps = window?.length ?? loaded.length;
  const blank = Array.from({ length: steps }, () => false);
  const show = (places: Place[], shown: boolean) => update(own(run, loaded, places, shown, state.edits));
  const place = { row: Math.min(selected.row, names.length - 1), step: Math.min(selected.step, steps - 1) };
  return (
    <section class="panel" aria-label="What is visible">
      <h2>1 · Choose what the model may see</h2>
      <MaskButtons session={session} loaded={loaded} />
      <p class="use small" aria-live="polite" data-testid="use">
        <b>{mask ? mask.title : state.mask === "own" ? "Your own mask" : ""}</b>
        {mask ? `: ${mask.summary}` : state.mask === "own" ? ": whatever is hidden is filled in." : ""}
        {mask?.note && <span class="muted"> {mask.note}</span>}
      </p>
      {mask && mask.moments[0] !== null && mask.now !== null && mask.moments[1] > mask.moments[0] && (
        <label class="small row">
          <span>now: step {loaded.start + mask.now}</span>
          <input
            class="grow" type="range" min={mask.moments[0]} max={mask.moments[1]} value={mask.now} aria-label="The moment that the mask calls now"
            onInput={(e) => update({ mask: mask.mask, now: Number(e.currentTarget.value) })}
          />
        </label>
      )}
      <Grid
        names={names}
        start={window?.start ?? loaded.start}
        steps={steps}
        visible={rows((name) => visible?.[name] ?? blank)}
        present={rows((name) => bits(window?.present[name], steps))}
        wanted={rows((name) => bits(mask?.wanted[name], steps))}
        changed={rows((name) => blank.map((_, i) => edits.some((e) => e.modality === name && e.step === i)))}
        selected={place}
        onSelect={setSelected}
        onShow={show}
      />
      <div class="legend">
        <span><i class="key cell shown" />visible</span>
        <span><i class="key cell" />hidden</span>
        <span><i class="key cell wanted" />asked for</span>
        <span><i class="key cell absent" />absent in the data</span>
        <span class="wide-only">keys: arrows, space, shift + arrow</span>
      </div>
      <WhatIf session={session} loaded={loaded} selected={place} />
    </section>
  );
}

function bits(row: string | undefined, steps: number): boolean[] {
  return Array.from({ length: steps }, (_, i) => row?.[i] === "1");
}

/** The state after some cells were shown or hidden. */
function own(run: Run, loaded: Loaded, places: Place[], shown: boolean, edits: Session["state"]["edits"]) {
  const rows: Record<string, string> = {};
  for (const [row, { name }] of run.modalities.entries()) {
    const now = [...(loaded.visible?.[name] ?? [])];
    for (const p of places) if (p.row === row) now[p.step] = shown;
    rows[name] = now.map((on) => (on ? "1" : "0")).join("");
  }
  const kept = edits.filter((e) => rows[e.modality]?.[e.step] === "1");
  return { mask: "own", shown: rows, edits: kept };
}

function MaskButtons({ session, loaded }: Props) {
  const { state, update, run } = session;
  if (!run) return null;
  const now = loaded.mask?.mask ?? state.mask;
  const all = (shown: boolean) => {
    const rows = run.modalities.flatMap((_, row) => Array.from({ length: loaded.length }, (_, step) => ({ row, step })));
    const there = rows.filter((p) => loaded.window?.present[run.modalities[p.row]?.name ?? ""]?.[p.step] === "1");
    update(own(run, loaded, there, shown, state.edits));
  };
  return (
    <div class="masks" role="group" aria-label="Masks">
      {run.masks.map((m) => (
        <button
          type="button" key={m.name} aria-pressed={now === m.name} disabled={m.problem !== null}
          title={m.problem ?? `${m.title}: ${m.summary}`} aria-label={`Mask ${m.name}: ${m.title}`}
          onClick={() => update({ mask: m.name, now: null, edits: [] })}
        >
          {m.name}
        </button>
      ))}
      <button
        type="button" aria-pressed={now === "training"} disabled={run.training_mask.problem !== null}
        title={run.training_mask.problem ?? `Another draw of the mask of training: ${run.training_mask.summary}`}
        onClick={() => update({ mask: "training", seed: state.mask === "training" ? state.seed + 1 : state.seed, edits: [] })}
      >
        random draw
      </button>
      <button type="button" title="Show everything that is there" onClick={() => all(true)}>all</button>
      <button type="button" title="Hide everything" onClick={() => all(false)}>none</button>
    </div>
  );
}

/** Other values than those that were recorded: the return by a slider, the selected token by numbers. */
function WhatIf({ session, loaded, selected }: Props & { selected: Place }) {
  const { state, update, run } = session;
  if (!run) return null;
  const modality = run.modalities[selected.row];
  const edits = loaded.edits;
  return (
    <section aria-label="What if">
      <div class="row">
        <h3 class="grow">What if it had been different?</h3>
        {edits.length > 0 && (
          <button type="button" onClick={() => update({ edits: [] })}>Undo {edits.length === 1 ? "the change" : `all ${edits.length} changes`}</button>
        )}
      </div>
      {run.modalities.filter((m) => m.role === "return" && m.low && m.high).map((m) => (
        <ReturnSlider key={m.name} session={session} loaded={loaded} name={m.name} unit={m.unit} low={m.low?.[0] ?? 0} high={m.high?.[0] ?? 1} />
      ))}
      {modality && <TokenValues update={update} loaded={loaded} run={run} selected={selected} edits={state.edits} />}
    </section>
  );
}

interface SliderProps extends Props {
  name: string;
  unit: string | null;
  low: number;
  high: number;
}

function ReturnSlider({ session, loaded, name, unit, low, high }: SliderProps) {
  const { state, update, run } = session;
  const places = (loaded.visible?.[name] ?? []).flatMap((on, step) => (on ? [step] : []));
  const there = bits(loaded.window?.present[name], loaded.length).some(Boolean);
  const set = loaded.edits.find((e) => e.modality === name)?.value;
  const recorded = loaded.window?.values[name]?.[places[0] ?? 0];
  const value = set ?? (Array.isArray(recorded) ? recorded[0] ?? low : low);
  const ask = (asked: number) => {
    if (!run) return;
    let base: Partial<Session["state"]> = {};
    let steps = places;
    if (steps.length === 0) {
      const row = run.modalities.findIndex((m) => m.name === name);
      steps = bits(loaded.window?.present[name], loaded.length).flatMap((on, step) => (on ? [step] : []));
      base = own(run, loaded, steps.map((step) => ({ row, step })), true, state.edits);
    }
    const others = state.edits.filter((e) => e.modality !== name);
    update({ ...base, edits: [...others, ...steps.map((step) => ({ modality: name, step, feature: 0, value: asked }))] });
  };
  const tail = places.length === 0 ? "; moving it shows them" : "";
  return (
    <label class="field">
      <span class="small">
        {set === undefined ? "As recorded, " : "Ask for "}<b>{name} = {number(value)}</b>
        <span class="muted">{unit ? ` ${unit}` : ""}{tail}</span>
      </span>
      <input
        type="range" min={low} max={high} step={(high - low) / 200 || 1} value={value} disabled={!there}
        aria-label={`What if: ${name}`} onInput={(e) => ask(Number(e.currentTarget.value))}
      />
    </label>
  );
}

interface TokenProps {
  update: Update;
  loaded: Loaded;
  run: Run;
  selected: Place;
  edits: Session["state"]["edits"];
}

function TokenValues({ update, loaded, run, selected, edits }: TokenProps) {
  const m = run.modalities[selected.row];
  const window = loaded.window;
  if (!m || !window) return null;
  const { step } = selected;
  const at = `${m.name} at step ${window.start + step}`;
  if (window.present[m.name]?.[step] !== "1") return <p class="small muted">{at} is absent in the data, so it cannot be shown.</p>;
  if (!loaded.visible?.[m.name]?.[step]) {
    return <p class="small muted">{at} is hidden. Select a visible cell to type other values, or drag its dot in a plot.</p>;
  }
  const row = window.values[m.name]?.[step];
  const recorded = (feature: number) => (Array.isArray(row) ? row[feature] : row) ?? 0;
  const held = (feature: number) => edits.find((e) => e.modality === m.name && e.step === step && e.feature === feature)?.value;
  const set = (feature: number, value: number) => update({ edits: changedEdits(edits, { modality: m.name, step, feature, value }) });
  return (
    <fieldset>
      <legend class="small">Values of <b>{at}</b>; type others, or drag their dots in the plots{m.unit ? ` (${m.unit})` : ""}</legend>
      <div class="values">
        {m.features.map((feature, i) => (
          <label key={feature}>
            <span>{feature}</span>
            {m.kind === "discrete" ? (
              <select value={String(held(i) ?? recorded(i))} aria-label={`${feature} at step ${window.start + step}`} onChange={(e) => set(i, Number(e.currentTarget.value))}>
                {classNames(m).map((name, c) => <option key={name} value={String(c)}>{name}</option>)}
              </select>
            ) : (
              <NumberField
                step="any" value={exact(held(i) ?? recorded(i))} aria-label={`${feature} at step ${window.start + step}`}
                onNumber={(value) => set(i, value)}
              />
            )}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

export function classNames(m: { classes: number; class_names: string[] | null }): string[] {
  return Array.from({ length: m.classes }, (_, i) => m.class_names?.[i] ?? String(i));
}

/** The edits with another one, in place of what was there. */
export function changedEdits(edits: Session["state"]["edits"], edit: Session["state"]["edits"][number]) {
  const same = (e: typeof edit) => e.modality === edit.modality && e.step === edit.step && e.feature === edit.feature;
  return [...edits.filter((e) => !same(e)), edit];
}
