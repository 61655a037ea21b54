// What the model says: errors beside the baselines', and every feature drawn.
import { useMemo, useRef, useState } from "preact/hooks";
import { type Answer, type Modality, type Run, type Score, type Told, at } from "./api";
import { Classes } from "./classes";
import { number } from "./format";
import { changedEdits, classNames } from "./masks";
import { type Curve, type Numbers, Plot } from "./plot";
import type { Loaded, Session } from "./session";
import { Take } from "./take";

/** Features drawn at first, where there are many. */
const MOST_AT_FIRST = 24;
const FIRST_OF_EACH = 8;

interface Props {
  session: Session;
  loaded: Loaded;
  theme: string;
}

export interface Feature {
  modality: Modality;
  index: number;
  name: string;
}

export function AnswerPanel({ session, loaded, theme }: Props) {
  const { state, update, run, other } = session;
  const [search, setSearch] = useState("");
  const [python, setPython] = useState(false);
  const features = useMemo(() => allFeatures(run), [run]);
  const ordered = useWantedFirst(run, loaded);
  if (!run) return null;
  const fits = (answer: Answer | null) =>
    answer && loaded.window && answer.start === loaded.window.start && answer.length === loaded.window.length && answer.episode === loaded.window.episode ? answer : null;
  const answer = fits(loaded.answer);
  const second = fits(loaded.second);
  const chosen = state.features ? features.filter((f) => state.features?.includes(f.name)) : firstOnes(features);
  const needle = search.trim().toLowerCase();
  const drawn = chosen.filter((f) => f.name.toLowerCase().includes(needle));
  return (
    <section class="panel" aria-label="The answer" aria-busy={loaded.busy}>
      <div class="row">
        <h2>2 · See the rest being filled in</h2>
        <span class="small muted grow" title="Time of the server">{answer ? `in ${number(answer.milliseconds)} ms` : ""}</span>
        <Take session={session} loaded={loaded} answer={answer} second={second} onRefused={() => setPython(true)} />
      </div>
      {loaded.problem && <p class="notice bad" role="alert">{loaded.problem}</p>}
      {loaded.secondProblem && other && <p class="notice bad" role="alert">{other.name}: {loaded.secondProblem}</p>}
      {answer && <Errors run={run} other={other} answer={answer} second={second} />}
      <div class="row tools">
        <label>
          <span class="unseen">Find features</span>
          <input type="search" placeholder="Find features" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        </label>
        <label class="small row">
          <input type="checkbox" checked={state.baselines} onChange={(e) => update({ baselines: e.currentTarget.checked })} />
          draw interpolation
        </label>
        <Choice features={features} chosen={chosen} needle={needle} onChoose={(names) => update({ features: names })} />
        <details open={python} onToggle={(e) => setPython(e.currentTarget.open)}>
          <summary class="small">Python that gives the same numbers</summary>
          <pre class="python" tabIndex={0} aria-label="Python">{answer?.python ?? ""}</pre>
        </details>
      </div>
      <Key other={other} baselines={state.baselines} run={run} />
      <div class="modalities">{ordered.map((m) => (
        <ModalityPlots key={m.name} {...{ session, loaded, theme, answer, second }} modality={m} features={drawn.filter((f) => f.modality === m)} />
      ))}</div>
      {drawn.length === 0 && <p class="empty">{needle ? `No drawn feature is called “${search}”. Choose others under Features.` : "Choose some under Features."}</p>}
    </section>
  );
}

/** What the mask asks for comes first. Clicks on cells change nothing about it: plots must not jump. */
function useWantedFirst(run: Run | null, loaded: Loaded): Modality[] {
  const wanted = useRef<Set<string>>(new Set());
  if (loaded.mask) wanted.current = new Set(Object.entries(loaded.mask.wanted).flatMap(([name, row]) => (row.includes("1") ? [name] : [])));
  const all = run?.modalities ?? [];
  return [...all.filter((m) => wanted.current.has(m.name)), ...all.filter((m) => !wanted.current.has(m.name))];
}

function allFeatures(run: Run | null): Feature[] {
  return run?.modalities.flatMap((modality) => modality.features.map((name, index) => ({ modality, index, name }))) ?? [];
}

function firstOnes(features: Feature[]): Feature[] {
  return features.length <= MOST_AT_FIRST ? features : features.filter((f) => f.index < FIRST_OF_EACH);
}

function Key({ run, other, baselines }: { run: Run; other: Run | null; baselines: boolean }) {
  return (
    <div class="legend" aria-label="Legend">
      <span><i class="stroke truth" />recorded</span>
      <span><i class="dot" />visible: drag it up or down</span>
      <span><i class="diamond" />changed</span>
      <span><i class="stroke answer" />{other ? run.name : "model"}, ± expected error</span>
      {other && <span><i class="stroke second" />{other.name}</span>}
      {baselines && <span><i class="stroke line" />interpolation</span>}
    </div>
  );
}

function Choice({ features, chosen, needle, onChoose }: { features: Feature[]; chosen: Feature[]; needle: string; onChoose: (names: string[]) => void }) {
  const names = new Set(chosen.map((f) => f.name));
  const found = features.filter((f) => f.name.toLowerCase().includes(needle));
  const set = (some: Feature[], on: boolean) => {
    const next = new Set(names);
    for (const f of some) if (on) next.add(f.name); else next.delete(f.name);
    onChoose(features.map((f) => f.name).filter((name) => next.has(name)));
  };
  return (
    <details>
      <summary class="small">Features: {chosen.length} of {features.length} drawn</summary>
      <div class="row">
        <button type="button" onClick={() => set(found, true)}>{needle ? "Draw those found" : "Draw all"}</button>
        <button type="button" onClick={() => set(found, false)}>{needle ? "Leave those found out" : "Draw none"}</button>
      </div>
      <div class="feature-list">
        {found.map((f) => (
          <label key={f.name}>
            <input type="checkbox" checked={names.has(f.name)} onChange={(e) => set([f], e.currentTarget.checked)} />
            {f.name}
          </label>
        ))}
      </div>
    </details>
  );
}

function Errors({ run, other, answer, second }: { run: Run; other: Run | null; answer: Answer; second: Answer | null }) {
  const rows = run.modalities.filter((m) => (answer.modalities[m.name]?.error.tokens ?? 0) > 0);
  if (rows.length === 0) return <p class="small muted">Everything that is recorded is visible: hide something to see an error.</p>;
  return (
    <div class="table-scroll">
      <table data-testid="errors">
        <thead>
          <tr>
            <th>error of what is hidden</th>
            <th scope="col">{other ? run.name : "model"}</th>
            {other && <th scope="col">{other.name}</th>}
            <th scope="col">interpolation</th><th scope="col">copying</th><th scope="col">mean</th><th scope="col" class="wide-only">tokens</th>
          </tr>
        </thead>
        <tbody>{rows.map((m) => <ErrorRow key={m.name} modality={m} told={answer.modalities[m.name]} second={second?.modalities[m.name]} both={other !== null} />)}</tbody>
      </table>
      <p class="small muted">
        Mean squared error in variances of the training data: 0 is perfect, 1 as good as the mean{rows.some((m) => m.kind === "discrete") ? "; of classes the share that is wrong" : ""}. All see the same tokens.
        {answer.edited ? " Values were changed: the errors are still against what was recorded." : ""}
      </p>
    </div>
  );
}

function ErrorRow({ modality, told, second, both }: { modality: Modality; told: Told | undefined; second: Told | undefined; both: boolean }) {
  if (!told) return null;
  const e = told.error;
  const scores: (Score | null | undefined)[] = [e, ...(both ? [second?.error] : []), e.interpolation, e.copy, e.mean];
  const discrete = modality.kind === "discrete";
  const values = scores.map((s) => (discrete ? s?.raw : s?.normalized) ?? null);
  const known = values.filter((v): v is number => v !== null);
  const best = Math.min(...known);
  return (
    <tr data-modality={modality.name}>
      <th scope="row">{modality.name}</th>
      {values.map((v, i) => (
        <td
          key={i}
          class={`scored${v !== null && v === best ? " best" : ""}`}
          title={scores[i] && !discrete ? `${number(scores[i]?.raw)} in squared units of the data` : ""}
          data-value={v ?? ""}
        >
          {v === null ? "–" : discrete ? `${number(v * 100)} %` : number(v)}
        </td>
      ))}
      <td class="wide-only">{e.tokens}</td>
    </tr>
  );
}

interface ModalityProps extends Props {
  modality: Modality;
  features: Feature[];
  answer: Answer | null;
  second: Answer | null;
}

function ModalityPlots(props: ModalityProps) {
  const { session, loaded, modality: m, features, theme } = props;
  const window = loaded.window;
  if (!window || features.length === 0) return null;
  const told = props.answer?.modalities[m.name];
  const other = props.second?.modalities[m.name];
  // What the answer is about, not what was clicked since: plots wait for their answer.
  const shown = told ? Array.from(told.visible, (mark) => mark === "1") : loaded.visible?.[m.name] ?? [];
  const steps = Array.from({ length: window.length }, (_, i) => window.start + i);
  const truth = window.values[m.name] ?? [];
  const held = (feature: number, step: number) => loaded.edits.find((e) => e.modality === m.name && e.step === step && e.feature === feature)?.value;
  const change = (feature: number) => (step: number, value: number) =>
    session.update({ edits: changedEdits(session.state.edits, { modality: m.name, step, feature, value }) });
  return (
    <section class={features.length === 1 ? "modality single" : "modality"} aria-label={m.name}>
      <header>
        <h3>{m.name}</h3>
        <span class="small muted">{[m.role, m.kind === "discrete" ? `${m.classes} classes` : "", m.unit ?? ""].filter(Boolean).join(" · ")}</span>
      </header>
      <div class="plots">
        {features.map(({ index, name }) => {
          const given = steps.map((_, i) => (shown[i] ? held(index, i) ?? at(truth, i, index) : null));
          const changed = steps.map((_, i) => held(index, i) !== undefined);
          const common = { name, steps, truth: steps.map((_, i) => at(truth, i, index)), shown: given, changed, theme };
          if (m.kind === "discrete") {
            const runs = [told?.probabilities ?? null, ...(session.other ? [other?.probabilities ?? null] : [])];
            return <Classes key={name} {...common} note={wrong(told)} classes={classNames(m)} runs={runs} onPick={change(index)} />;
          }
          const curves = [curve("answer", told, index, steps.length), curve("second", other, index, steps.length)];
          if (session.state.baselines) curves.push({ colour: "line", values: straight(given) });
          const kept = curves.filter((c): c is Curve => c !== null);
          return <Plot key={name} {...common} unit={m.unit ?? ""} curves={kept} note={off(common.truth, given, told, index, m)} onDrag={change(index)} />;
        })}
      </div>
    </section>
  );
}

function curve(colour: "answer" | "second", told: Told | undefined, feature: number, steps: number): Curve | null {
  if (!told) return null;
  const values = Array.from({ length: steps }, (_, i) => at(told.prediction, i, feature));
  if (!told.deviation) return { colour, values };
  const deviation = told.deviation;
  const spread = (way: number): Numbers =>
    values.map((v, i) => (v === null ? null : v + way * (deviation[i]?.[feature] ?? 0)));
  return { colour, values, low: spread(-1), high: spread(1) };
}

/** Straight lines between visible values; beyond the first and the last they are held. */
function straight(given: Numbers): Numbers {
  const known = given.flatMap((v, i) => (v === null ? [] : [[i, v] as const]));
  return given.map((_, i) => {
    const before = known.filter(([k]) => k <= i).at(-1);
    const after = known.find(([k]) => k >= i);
    if (!before || !after) return (before ?? after)?.[1] ?? null;
    if (before[0] === after[0]) return before[1];
    return before[1] + ((after[1] - before[1]) * (i - before[0])) / (after[0] - before[0]);
  });
}

/** How far off the answers are, beside how far off the model expected them to be. */
function off(truth: Numbers, given: Numbers, told: Told | undefined, feature: number, m: Modality): string {
  if (!told) return "";
  const hidden = truth.flatMap((v, i) => (v !== null && given[i] === null ? [i] : []));
  if (hidden.length === 0) return "all visible";
  const root = (of: (i: number) => number) => Math.sqrt(hidden.reduce((sum, i) => sum + of(i) ** 2, 0) / hidden.length);
  const error = root((i) => (at(told.prediction, i, feature) ?? 0) - (truth[i] ?? 0));
  const expected = told.deviation ? ` (expected ${number(root((i) => told.deviation?.[i]?.[feature] ?? 0), 2)})` : "";
  return `off by ${number(error, 2)}${expected}${m.unit && m.unit.length < 8 ? ` ${m.unit}` : ""}`;
}

function wrong(told: Told | undefined): string {
  if (!told) return "";
  return told.error.tokens === 0 ? "all visible" : `${number((told.error.raw ?? 0) * 100)} % wrong`;
}
