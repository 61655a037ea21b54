// What the server says, and how it is asked: the newest question wins, a lost server is waited for.

export type Grid = Record<string, string>;
export type Row = (number | null)[];
/** Steps by features; of a discrete modality one class per step. */
export type Values = (Row | number | null)[];

export interface Modality {
  name: string;
  size: number;
  kind: "continuous" | "discrete";
  role: "state" | "return" | "action" | "reward";
  classes: number;
  class_names: string[] | null;
  features: string[];
  unit: string | null;
  std: number[] | null;
  low: number[] | null;
  high: number[] | null;
}

export interface MaskChoice {
  name: string;
  title?: string;
  summary: string;
  problem: string | null;
}

export interface Acting {
  environment: string | null;
  problem: string | null;
  policies: { name: string; title: string; asks_return: boolean; problem: string | null }[];
  returns: { low: number; high: number } | null;
}

export interface Run {
  id: number;
  name: string;
  path: string;
  step: number;
  members: number;
  segment_length: number;
  default_length: number;
  data: number;
  modalities: Modality[];
  masks: MaskChoice[];
  training_mask: MaskChoice;
  acting: Acting;
}

export interface Studio {
  version: string;
  limits: { longest_window: number; most_episodes: number; page: number };
  data: { id: number; name: string; spec: string }[];
  runs: Run[];
}

export interface DataInfo {
  name: string;
  episodes: number;
  steps: number;
  own: boolean;
  split: { state: "ready" | "pending" | "none"; held_out?: number; training?: number };
  lacking: string[];
}

export type Side = "held-out" | "training" | "other" | null;

export interface Episode {
  episode: number;
  length: number;
  return: number | null;
  side: Side;
  terminated: boolean | null;
  absent: Record<string, number>;
}

export interface Episodes {
  total: number;
  offset: number;
  split: "ready" | "pending" | "none";
  episodes: Episode[];
}

export interface TimelineData {
  episode: number;
  length: number;
  name: string | null;
  unit: string | null;
  steps: number[];
  mean: Row;
  absent: Record<string, [number, number][]>;
}

export interface Window {
  episode: number;
  start: number;
  length: number;
  values: Record<string, Values>;
  present: Grid;
}

export interface Mask {
  mask: string;
  title: string;
  summary: string;
  now: number | null;
  moments: [number, number] | [null, null];
  visible: Grid;
  wanted: Grid;
  note: string | null;
}

export interface Score {
  normalized: number | null;
  raw: number | null;
}

export interface Told {
  visible: string;
  present: string;
  prediction: Values;
  deviation: (Row | null)[] | null;
  probabilities?: (Row | null)[] | null;
  error: Score & { tokens: number; copy: Score | null; interpolation: Score | null; mean: Score | null };
}

export interface Answer {
  sequence: number;
  run: number;
  episode: number;
  start: number;
  length: number;
  milliseconds: number;
  edited: boolean;
  modalities: Record<string, Told>;
  python: string;
}

export interface Edit {
  modality: string;
  step: number;
  feature: number;
  value: number;
}

export interface ActEpisode {
  seed: number;
  return: number | null;
  score: number | null;
  length: number;
  success: boolean | null;
  failure: string | null;
  asked: number | null;
}

export interface Quality {
  state: "none" | "running" | "done" | "failed";
  progress: number;
  error: string | null;
  steps: number;
  of_steps: number;
  total: number;
  episodes: {
    episode: number;
    surprise: number;
    side: Side;
    modalities: Record<string, number | null>;
    worst: { step: number; modality: string; surprise: number }[];
  }[];
}

/** One number of a modality at a step. */
export function at(values: Values, step: number, feature: number): number | null {
  const row = values[step] ?? null;
  return Array.isArray(row) ? row[feature] ?? null : row;
}

/** The server said no, and why. */
export class Refusal extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
  }
}

/** There is no server. */
export class Gone extends Error {}

let onGone: () => void = () => undefined;

/** Whom to tell that the server does not answer. */
export function whenGone(tell: () => void): void {
  onGone = tell;
}

/** Ask the server; `body` makes it a POST. */
export async function ask<Result>(path: string, body?: unknown, signal?: AbortSignal): Promise<Result> {
  let response: Response;
  let text: string;
  const how: RequestInit = { cache: "no-store" };
  if (signal) how.signal = signal;
  if (body !== undefined) {
    how.method = "POST";
    how.headers = { "Content-Type": "application/json" };
    how.body = JSON.stringify(body);
  }
  try {
    response = await fetch(`/api/${path}`, how);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    onGone();
    throw new Gone();
  }
  const said = parsed(text);
  if (!response.ok) {
    const fault = (said as { error?: { code: string; message: string } } | null)?.error;
    throw new Refusal(fault?.code ?? "internal", fault?.message ?? `The server answered ${response.status}.`);
  }
  return said as Result;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function query(path: string, values: Record<string, string | number>): string {
  return `${path}?${new URLSearchParams(Object.entries(values).map(([k, v]) => [k, String(v)]))}`;
}

/** After this many milliseconds, a question that is no longer the newest is given up. */
const PATIENCE = 120;

/**
 * A lane for questions of which only the newest matters. One is on its way at a time, so that a
 * drag gets answers while it goes on; what waits is replaced by what comes; what takes too long is
 * given up for what waits.
 */
export class Lane {
  private sequence = 0;
  private waiting: (() => Promise<void>) | null = null;
  private flying: AbortController | null = null;
  private since = 0;
  private timer = 0;
  private readonly client = `${Math.random().toString(36).slice(2)}-${Date.now()}`;

  /** Post a question; `done` and `failed` are called unless a newer one overtakes it. */
  post<Result>(path: string, body: object, done: (result: Result) => void, failed: (error: Error) => void): void {
    const sequence = ++this.sequence;
    this.waiting = async () => {
      const flying = new AbortController();
      this.flying = flying;
      this.since = performance.now();
      try {
        const whole = { ...body, client: this.client, sequence };
        const result = await ask<Result>(path, whole, flying.signal);
        if (!flying.signal.aborted) done(result);
      } catch (error) {
        const old = flying.signal.aborted || (error instanceof Refusal && error.code === "overtaken");
        if (!old) failed(error as Error);
      } finally {
        if (this.flying === flying) this.flying = null;
      }
      this.next();
    };
    this.next();
  }

  /** Nothing that is under way matters any more. */
  clear(): void {
    this.waiting = null;
    this.flying?.abort();
  }

  private next(): void {
    clearTimeout(this.timer);
    if (!this.waiting) return;
    if (this.flying) {
      const left = PATIENCE - (performance.now() - this.since);
      if (left > 0) {
        this.timer = window.setTimeout(() => this.next(), left);
        return;
      }
      this.flying.abort();
      this.flying = null;
    }
    const start = this.waiting;
    this.waiting = null;
    void start();
  }
}
