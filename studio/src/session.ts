// The state of the page and everything that was asked for it.
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type State, read, written } from "./address";
import {
  type Answer, type DataInfo, type Edit, type Episodes, type Episode, type Grid, type Mask, type Run, type Studio,
  type TimelineData, type Window, ask, Gone, Lane, query, Refusal, whenGone,
} from "./api";

export type Update = (change: Partial<State>) => void;

export interface Asked<Result> {
  value: Result | null;
  error: string | null;
}

export interface Session {
  state: State;
  update: Update;
  studio: Studio | null;
  gone: boolean;
  /** Why the server does not let us in. */
  refused: string | null;
  /** Counts how often the server came back: whatever was asked is asked again. */
  comeback: number;
  /** What in the address does not exist here. */
  unknown: string | null;
  run: Run | null;
  other: Run | null;
  data: number;
}

const HEARTBEAT = 5000;
const RETRY = 1000;
const SETTLED = 200;

/** The moment of the latest change by the user, to measure how long its answer takes. */
let touched = 0;

export function useSession(): Session {
  const [state, setState] = useState<State>(() => read(location.hash));
  const [studio, setStudio] = useState<Studio | null>(null);
  const [gone, setGone] = useState(false);
  const [refused, setRefused] = useState<string | null>(null);
  const [comeback, setComeback] = useState(0);
  const update = useCallback((change: Partial<State>) => {
    touched = performance.now();
    setState((old) => ({ ...old, ...change }));
  }, []);

  // Not at each move of a drag: browsers allow only so many changes of the address.
  useEffect(() => {
    const timer = window.setTimeout(() => history.replaceState(null, "", `#${written(state)}`), SETTLED);
    return () => clearTimeout(timer);
  }, [state]);
  useEffect(() => {
    const changed = () => setState(read(location.hash));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => {
    let lost = false;
    let timer = 0;
    const later = () => {
      clearTimeout(timer);
      timer = window.setTimeout(look, lost ? RETRY : HEARTBEAT);
    };
    const look = async () => {
      try {
        const found = await ask<Studio>("studio");
        setStudio((old) => (JSON.stringify(old) === JSON.stringify(found) ? old : found));
        setGone(false);
        setRefused(null);
        if (lost) setComeback((n) => n + 1);
        lost = false;
      } catch (error) {
        if (error instanceof Refusal) setRefused(error.message);
      }
      later();
    };
    whenGone(() => {
      lost = true;
      setGone(true);
      later();
    });
    void look();
    return () => clearTimeout(timer);
  }, []);

  const chosen = useMemo(() => choose(studio, state), [studio, state.run, state.other, state.data]);
  return { state, update, studio, gone, refused, comeback, ...chosen };
}

/** How a run or data set is called in the address. */
export function keyOf(all: { id: number; name: string }[], id: number): string {
  const it = all.find((one) => one.id === id);
  if (!it) return "";
  return all.filter((one) => one.name === it.name).length > 1 ? `${it.name}*${id}` : it.name;
}

function choose(studio: Studio | null, state: State): Pick<Session, "run" | "other" | "data" | "unknown"> {
  if (!studio) return { run: null, other: null, data: 0, unknown: null };
  const find = <One extends { id: number; name: string }>(all: One[], key: string) =>
    all.find((one) => key !== "" && keyOf(all, one.id) === key) ?? null;
  const run = find(studio.runs, state.run);
  const other = find(studio.runs, state.other);
  const data = find(studio.data, state.data);
  const unknown =
    state.run && !run ? `run ${state.run}` : state.other && !other ? `run ${state.other}` : state.data && !data ? `data ${state.data}` : null;
  const used = run ?? studio.runs[0] ?? null;
  return { run: used, other: other && other.id !== used?.id ? other : null, data: data?.id ?? used?.data ?? 0, unknown };
}

/** Ask whenever the question changes; null asks nothing. Old answers stay until there are new ones. */
export function useAsked<Result>(path: string | null, body: object | null, comeback: number): Asked<Result> & { asked: string } {
  const [got, setGot] = useState<Asked<Result> & { asked: string }>({ value: null, error: null, asked: "" });
  const text = path === null ? "" : `${path} ${body === null ? "" : JSON.stringify(body)}`;
  useLayoutEffect(() => {
    if (path === null) return;
    const control = new AbortController();
    ask<Result>(path, body ?? undefined, control.signal).then(
      (value) => setGot({ value, error: null, asked: text }),
      (error: Error) => {
        if (control.signal.aborted || error instanceof Gone) return;
        setGot({ value: null, error: error.message, asked: text });
      },
    );
    return () => control.abort();
  }, [text, comeback]);
  return { ...got, asked: got.asked === text ? text : "" };
}

export interface Loaded {
  info: Asked<DataInfo>;
  episode: Episode | null;
  timeline: Asked<TimelineData>;
  window: Window | null;
  mask: Mask | null;
  /** Modality -> whether each step of the window is visible; null while that is unknown. */
  visible: Record<string, boolean[]> | null;
  edits: Edit[];
  answer: Answer | null;
  second: Answer | null;
  /** Whether what is shown is not yet the answer to what is chosen. */
  busy: boolean;
  problem: string | null;
  secondProblem: string | null;
  length: number;
  start: number;
}

/** Everything that the chosen window needs. */
export function useWindow(session: Session): Loaded {
  const { state, run, data, comeback } = session;
  const here = run ? { run: run.id, data } : null;
  const info = useAsked<DataInfo>(here && query("data", here), null, comeback);
  const known = info.asked ? info.value : null;
  const number = known ? Math.min(state.episode, known.episodes - 1) : state.episode;
  const [tick, setTick] = useState(0);
  const listed = useAsked<Episodes>(here && known && query("episodes", { ...here, offset: number, count: 1, side: "all" }), null, comeback + tick);
  useEffect(() => {
    if (listed.value?.split !== "pending") return;
    const timer = window.setTimeout(() => setTick((n) => n + 1), RETRY);
    return () => clearTimeout(timer);
  }, [listed.value]);
  const place = here && known ? { ...here, episode: number } : null;
  const timeline = useAsked<TimelineData>(place && query("timeline", { ...place, points: 600 }), null, comeback);
  const steps = timeline.asked ? timeline.value?.length ?? null : null;
  const most = session.studio?.limits.longest_window ?? 256;
  const length = Math.min(state.length || run?.default_length || 1, steps ?? most, most);
  const start = Math.min(state.start, Math.max((steps ?? 0) - length, 0));
  const span = place && steps !== null ? { ...place, start, length } : null;
  const truth = useAsked<Window>(span && query("window", span), null, comeback);
  const named = run && span ? usable(run, state.mask) : null;
  const question = span && named !== null && named !== "own"
    ? { ...span, mask: named, ...(named === "training" ? { seed: state.seed } : { now: fitting(state.now, length) }) } : null;
  const mask = useAsked<Mask>(question && "mask", question, comeback);

  const windowNow = truth.asked ? truth.value : null;
  const maskNow = mask.asked ? mask.value : null;
  const visible = useMemo(
    () => (run && windowNow ? shownTokens(run, windowNow, named === "own" ? state.shown : maskNow?.visible ?? null) : null),
    [run, windowNow, maskNow, named, state.shown],
  );
  const edits = useMemo(
    () => (visible ? state.edits.filter((e) => visible[e.modality]?.[e.step]) : []),
    [visible, state.edits],
  );
  const first = useAnswer(run, data, windowNow, visible, edits, comeback);
  const second = useAnswer(session.other, data, windowNow, visible, edits, comeback);
  const last = useRef(visible);
  if (visible) last.current = visible;
  const blocked = info.error ?? timeline.error ?? truth.error ?? (named === "own" ? null : mask.error);
  return {
    info, timeline, window: truth.value, mask: named === "own" ? null : mask.value, visible: visible ?? last.current, edits, length, start,
    episode: listed.value?.episodes[0] ?? null, answer: first.value, second: second.value,
    problem: blocked ?? first.error, secondProblem: second.error, busy: blocked === null && (first.busy || second.busy),
  };
}

/** The mask to ask with: the chosen one, or the first that this run can be asked. */
function usable(run: Run, wanted: string): string {
  if (wanted === "own" || wanted === "training") return wanted;
  const able = run.masks.filter((m) => m.problem === null).map((m) => m.name);
  return [wanted, "waypoints", "fd", ...able].find((name) => able.includes(name)) ?? "training";
}

function fitting(now: number | null, length: number): number | null {
  return now === null || now >= length ? null : now;
}

function shownTokens(run: Run, window: Window, bits: Grid | null): Record<string, boolean[]> | null {
  if (!bits) return null;
  const rows = run.modalities.map(({ name }) => {
    const there = window.present[name] ?? "";
    const row = Array.from({ length: window.length }, (_, i) => there[i] === "1" && bits[name]?.[i] === "1");
    return [name, row] as const;
  });
  return Object.fromEntries(rows);
}

function useAnswer(
  run: Run | null, data: number, window: Window | null, visible: Record<string, boolean[]> | null, edits: Edit[], comeback: number,
): Asked<Answer> & { busy: boolean } {
  const lane = useRef<Lane | null>(null);
  lane.current ??= new Lane();
  const [got, setGot] = useState<Asked<Answer> & { text: string }>({ value: null, error: null, text: "" });
  const body = useMemo(() => (run && window && visible ? bodyOf(run, data, window, visible, edits) : null), [run, data, window, visible, edits]);
  const text = JSON.stringify(body);
  useLayoutEffect(() => {
    if (!body) {
      if (!run) { lane.current?.clear(); setGot({ value: null, error: null, text: "" }); }
      return;
    }
    if (!Object.values(body.visible).some((row) => row.includes("1"))) {
      lane.current?.clear();
      setGot({ value: null, error: "Nothing is visible. Show at least one token: click a cell of the grid, or choose a mask.", text });
      return;
    }
    lane.current?.post<Answer>("answer", body, (value) => {
      setGot({ value, error: null, text });
    }, (error) => {
      if (error instanceof Refusal) setGot({ value: null, error: error.message, text });
    });
  }, [text, comeback]);
  useLayoutEffect(() => {
    if (!got.value || touched === 0) return;
    const since = touched;
    touched = 0;
    setTimeout(() => performance.measure("answer", { start: since, end: performance.now() }));
  }, [got.value]);
  return { ...got, busy: run !== null && got.text !== text };
}

function bodyOf(run: Run, data: number, window: Window, visible: Record<string, boolean[]>, edits: Edit[]) {
  const rows = run.modalities.flatMap(({ name }) => {
    const row = visible[name];
    return row ? [[name, row.map((on) => (on ? "1" : "0")).join("")] as const] : [];
  });
  const mine = edits.filter((e) => run.modalities.some((m) => m.name === e.modality && e.feature < m.size));
  const { episode, start, length } = window;
  return { run: run.id, data, episode, start, length, visible: Object.fromEntries(rows), edits: mine };
}
