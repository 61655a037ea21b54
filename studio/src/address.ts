// The whole state of the page, kept in the address behind `#`.
import type { Edit } from "./api";

export type View = "ask" | "act" | "quality";

export interface State {
  view: View;
  /** Names, not numbers: an address outlives the server that it was copied from. */
  run: string;
  other: string;
  data: string;
  episode: number;
  start: number;
  /** 0: as many as the run suggests. */
  length: number;
  /** A named mask, `training` for a draw of the training mask, `own` for one made by hand. */
  mask: string;
  now: number | null;
  seed: number;
  /** The visible tokens of an own mask: modality -> "1100". */
  shown: Record<string, string>;
  edits: Edit[];
  /** Names of the features that are drawn; null: a choice by their number. */
  features: string[] | null;
  baselines: boolean;
  policy: string;
  target: string;
  episodes: number;
  actSeed: number;
  frames: boolean;
}

export const START: State = {
  view: "ask",
  run: "",
  other: "",
  data: "",
  episode: 0,
  start: 0,
  length: 0,
  mask: "",
  now: null,
  seed: 0,
  shown: {},
  edits: [],
  features: null,
  baselines: false,
  policy: "",
  target: "auto",
  episodes: 5,
  actSeed: 0,
  frames: true,
};

const NUMBERS = ["episode", "start", "length", "seed", "episodes", "actSeed"] as const;
const WORDS = ["run", "other", "data", "mask", "policy", "target"] as const;

/** What stands behind `#`. */
export function written(state: State): string {
  const out = new URLSearchParams();
  if (state.view !== "ask") out.set("view", state.view);
  for (const key of WORDS) if (state[key] !== START[key]) out.set(key, state[key]);
  for (const key of NUMBERS) if (state[key] !== START[key]) out.set(key, String(state[key]));
  if (state.now !== null && state.mask !== "own") out.set("now", String(state.now));
  if (state.mask === "own") {
    for (const [name, bits] of Object.entries(state.shown)) out.append("shown", `${name}.${bits}`);
  }
  for (const e of state.edits) out.append("what", [e.modality, e.step, e.feature, e.value].join("*"));
  if (state.features) out.set("features", state.features.join("*"));
  if (!state.frames) out.set("frames", "0");
  if (state.baselines) out.set("baselines", "1");
  return out.toString();
}

/** The inverse of `written`; what makes no sense is left as it is at the start. */
export function read(hash: string): State {
  const held = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { ...START };
  const view = held.get("view");
  if (view === "act" || view === "quality") state.view = view;
  for (const key of WORDS) state[key] = held.get(key) ?? START[key];
  for (const key of NUMBERS) state[key] = whole(held.get(key)) ?? START[key];
  state.now = whole(held.get("now"));
  state.shown = Object.fromEntries(held.getAll("shown").map(split).filter(([, bits]) => /^[01]+$/.test(bits)));
  state.edits = held.getAll("what").map(edit).filter((e): e is Edit => e !== null);
  state.features = held.get("features")?.split("*").filter(Boolean) ?? null;
  state.frames = held.get("frames") !== "0";
  state.baselines = held.get("baselines") === "1";
  return state;
}

function split(text: string): [string, string] {
  const dot = text.lastIndexOf(".");
  return [text.slice(0, dot), text.slice(dot + 1)];
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function edit(text: string): Edit | null {
  const [modality, step, feature, value] = text.split("*");
  const place = { step: whole(step ?? null), feature: whole(feature ?? null) };
  const given = Number(value);
  if (!modality || place.step === null || place.feature === null || !value || !Number.isFinite(given)) return null;
  return { modality, step: place.step, feature: place.feature, value: given };
}
