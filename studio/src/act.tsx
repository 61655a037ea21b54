// Let a run act in its environment, and watch the returns arrive.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { type ActEpisode, ask, Gone, query, Refusal } from "./api";
import { NumberField, within } from "./fields";
import { counted, number } from "./format";
import type { Session } from "./session";

interface Job {
  job: number;
  environment: string;
  policy: string;
  target: number | null;
  episodes: number;
  /** Of the first episode. */
  seed: number;
  /** What one should know, such as that the target lies beyond the data. */
  notices: string[];
}

interface End {
  state: "done" | "cancelled" | "failed";
  error: string | null;
  mean: number | null;
  std: number | null;
}

interface Progress {
  finished: number;
  episodes: number;
  step: number;
}

interface Seen {
  job: Job | null;
  progress: Progress | null;
  results: ActEpisode[];
  frame: string | null;
  framesProblem: string | null;
  end: End | null;
  error: string | null;
}

const LARGEST_SEED = 2 ** 31 - 1;

const NOTHING: Seen = { job: null, progress: null, results: [], frame: null, framesProblem: null, end: null, error: null };

export function Act({ session, theme }: { session: Session; theme: string }) {
  const { run } = session;
  const [seen, setSeen] = useState<Seen>(NOTHING);
  const stream = useRef<EventSource | null>(null);
  /** Counts the runs and orders looked at: what answers an earlier one is too late. */
  const turn = useRef(0);
  const see = (change: (old: Seen) => Partial<Seen>) => setSeen((old) => ({ ...old, ...change(old) }));
  useEffect(() => {
    if (!run) return;
    const mine = ++turn.current;
    setSeen(NOTHING);
    // What went on while the page was elsewhere, or was opened again, is followed and can be stopped.
    ask<Job | { job: null }>(query("act", { run: run.id })).then((found) => {
      if (mine !== turn.current || found.job === null) return;
      see(() => ({ job: found }));
      stream.current = follow(found, see);
    }, (error: Error) => { if (mine === turn.current && !(error instanceof Gone)) see(() => ({ error: error.message })); });
    return () => {
      turn.current++;
      stream.current?.close();
    };
  }, [run?.id]);
  if (!run) return null;
  const { acting } = run;
  if (acting.problem !== null) {
    return (
      <section class="panel" aria-label="Act">
        <h2>Let {run.name} act</h2>
        <p class="notice lines">{acting.problem}</p>
      </section>
    );
  }
  const start = async (question: object) => {
    const mine = ++turn.current;
    stream.current?.close();
    setSeen(NOTHING);
    try {
      const job = await ask<Job>("act", question);
      if (mine !== turn.current) return;
      see(() => ({ job }));
      stream.current = follow(job, see);
    } catch (error) {
      if (mine === turn.current) see(() => ({ error: error instanceof Refusal ? error.message : "The server does not answer." }));
    }
  };
  const stop = () => {
    if (seen.job) ask(`act/${seen.job.job}/cancel`, {}).catch((error: Error) => see(() => ({ error: error.message })));
  };
  const running = seen.job !== null && seen.end === null && seen.error === null;
  return (
    <div class="act">
      <section class="panel" aria-label="How to act">
        <h2>Let {run.name} act in {acting.environment}</h2>
        <Orders session={session} running={running} onStart={(q) => void start(q)} onStop={stop} />
        {seen.error && <p class="notice bad" role="alert">{seen.error}</p>}
        {seen.job?.notices.map((text) => <p class="notice small" key={text}>{text}</p>)}
        {seen.framesProblem && <p class="notice small">No pictures: {seen.framesProblem}</p>}
        {seen.frame && <img class="frame" src={seen.frame} alt={`The first episode in ${acting.environment}`} />}
      </section>
      <section class="panel" aria-label="Returns">
        <h2>Asked against earned</h2>
        <Outcome seen={seen} theme={theme} />
      </section>
    </div>
  );
}

/** Listen to what a job reports. */
function follow(job: Job, see: (change: (old: Seen) => Partial<Seen>) => void): EventSource {
  const stream = new EventSource(`/api/act/${job.job}/events`);
  const on = <Said,>(name: string, take: (said: Said, old: Seen) => Partial<Seen>) =>
    stream.addEventListener(name, (event) => {
      const said = JSON.parse((event as MessageEvent<string>).data) as Said;
      see((old) => take(said, old));
    });
  on<{ problem: string | null }>("frames", ({ problem }) => ({ framesProblem: problem }));
  on<Progress>("progress", (progress) => ({ progress }));
  on<ActEpisode>("episode", (episode, old) => ({ results: [...old.results.filter((e) => e.seed !== episode.seed), episode] }));
  on<{ image: string }>("frame", ({ image }) => (image.startsWith("data:image/png;base64,") ? { frame: image } : {}));
  on<End>("end", (end) => {
    stream.close();
    return { end, error: end.error };
  });
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) return;
    see((old) => (old.end ? {} : { error: "The episodes ended with the server. Start them again." }));
  });
  return stream;
}

interface OrdersProps {
  session: Session;
  running: boolean;
  onStart: (question: object) => void;
  onStop: () => void;
}

function Orders({ session, running, onStart, onStop }: OrdersProps) {
  const { state, update, run, studio } = session;
  if (!run || !studio) return null;
  const able = run.acting.policies.filter((p) => p.problem === null);
  const policy = run.acting.policies.find((p) => p.name === state.policy) ?? able[0];
  const range = run.acting.returns;
  const most = studio.limits.most_episodes;
  const asked = Number(state.target);
  const own = state.target !== "auto";
  const submit = (event: Event) => {
    event.preventDefault();
    if (!policy) return;
    onStart({ run: run.id, policy: policy.name, target: own ? asked : "auto", episodes: state.episodes, seed: state.actSeed, frames: state.frames });
  };
  return (
    <form onSubmit={submit}>
      <label class="field">
        Policy
        <select value={policy?.name ?? ""} onChange={(e) => update({ policy: e.currentTarget.value })}>
          {run.acting.policies.map((p) => (
            <option key={p.name} value={p.name} disabled={p.problem !== null} title={p.problem ?? ""}>{p.title} ({p.name}){p.problem ? " – not with this run" : ""}</option>
          ))}
        </select>
      </label>
      {policy?.problem && <p class="notice small">{policy.problem}</p>}
      {policy?.asks_return && range && (
        <fieldset>
          <legend class="small muted">Return to ask for</legend>
          <div class="row">
            <label class="small"><input type="radio" name="target" checked={!own} onChange={() => update({ target: "auto" })} /> as good as it gets</label>
            <label class="small">
              <input type="radio" name="target" checked={own} onChange={() => update({ target: String(Math.round(range.high)) })} /> this:{" "}
              <b>{own ? number(asked) : "–"}</b>
            </label>
          </div>
          <input
            type="range" min={range.low} max={range.high} step={(range.high - range.low) / 200 || 1} aria-label="Return to ask for"
            value={own ? asked : range.high} onInput={(e) => update({ target: String(Number(Number(e.currentTarget.value).toPrecision(4))) })}
          />
          <p class="small muted">The data's episodes earned {number(range.low)} to {number(range.high)}.</p>
        </fieldset>
      )}
      <div class="choices">
        <label>
          Episodes
          <NumberField min={1} max={most} value={state.episodes} onNumber={(n) => update({ episodes: within(n, 1, most) })} />
        </label>
        <label>
          First seed
          <NumberField min={0} value={state.actSeed} onNumber={(n) => update({ actSeed: within(n, 0, LARGEST_SEED) })} />
        </label>
      </div>
      <label class="small row">
        <input type="checkbox" checked={state.frames} onChange={(e) => update({ frames: e.currentTarget.checked })} />
        draw the first episode (slower)
      </label>
      <div class="row">
        <button type="submit" class="primary" disabled={running || !policy || policy.problem !== null}>Let it act</button>
        <button type="button" disabled={!running} onClick={onStop}>Stop</button>
      </div>
    </form>
  );
}

function Outcome({ seen, theme }: { seen: Seen; theme: string }) {
  const { job, progress, results, end } = seen;
  if (!job) return <p class="empty">Choose a policy and let it act: each episode's return appears here as it ends.</p>;
  const ended = results.filter((e) => e.failure === null);
  const mean = ended.reduce((sum, e) => sum + (e.return ?? 0), 0) / Math.max(ended.length, 1);
  const state = end ? { done: "All episodes ended", cancelled: "Stopped", failed: "It failed" }[end.state] : `Step ${(progress?.step ?? 0).toLocaleString("en")}`;
  return (
    <>
      <progress max={job.episodes} value={results.length} aria-label="Episodes that ended" />
      <p role="status" data-testid="acting">
        {state}: {results.length} of {counted(job.episodes, "episode")} by {job.policy}
        {job.target === null ? "" : `, asked for ${number(job.target)}`}
        {ended.length > 0 && <>, earned <b>{number(mean)}</b> on average</>}
        {end?.std !== null && end?.std !== undefined && ended.length > 1 && ` (standard deviation ${number(end.std)})`}.
      </p>
      {ended.length > 0 && <Earned results={ended} seeds={Array.from({ length: job.episodes }, (_, i) => job.seed + i)} target={job.target} theme={theme} />}
      <div class="table-scroll">
        <table>
          <thead><tr><th>seed</th><th>asked</th><th>earned</th><th>score</th><th>steps</th><th>success</th></tr></thead>
          <tbody>
            {results.map((e) => (
              <tr key={e.seed}>
                <td>{e.seed}</td>
                <td>{number(e.asked)}</td>
                <td>{e.failure ?? number(e.return)}</td>
                <td>{number(e.score)}</td>
                <td>{e.length.toLocaleString("en")}</td>
                <td>{e.success === null ? "–" : e.success ? "yes" : "no"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** A dot per episode, and a line at what was asked for. */
function Earned({ results, seeds, target, theme }: { results: ActEpisode[]; seeds: number[]; target: number | null; theme: string }) {
  const holder = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!holder.current) return;
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: of("muted"), grid: { stroke: of("rule"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width: Math.max(holder.current.clientWidth, 100), height: 170, legend: { show: false }, cursor: { show: false }, padding: [10, 10, 0, 0],
      scales: { x: { time: false, range: (_, a, b) => [a - 0.6, b + 0.6] }, y: { range: (_, a, b) => { const low = Math.min(a, 0); return [low, b + (b - low || 1) * 0.08]; } } },
      axes: [{ ...axis, size: 20, incrs: [1, 2, 5, 10, 20, 50] }, { ...axis, size: 52 }],
      series: [{}, { stroke: of("answer"), width: 0, paths: () => null, points: { show: true, size: 9, fill: of("answer") } },
        { stroke: of("shown"), width: 2, dash: [6, 4], points: { show: false } }],
    };
    const data: uPlot.AlignedData = [seeds, seeds.map((seed) => results.find((e) => e.seed === seed)?.return ?? null), seeds.map(() => target)];
    const plot = new uPlot(options, data, holder.current);
    return () => plot.destroy();
  }, [results, target, theme]);
  return (
    <figure>
      <div ref={holder} role="img" aria-label={`Returns of ${counted(results.length, "episode")}`} />
      <figcaption class="legend">
        <span><i class="dot earned" />earned, by seed</span>
        {target !== null && <span><i class="stroke asked" />asked for</span>}
      </figcaption>
    </figure>
  );
}
