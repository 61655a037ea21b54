// Which run, which data, which episode, which part of it.
import { useState } from "preact/hooks";
import { type Episodes, type Run, type Side, type Studio, query } from "./api";
import { NumberField, within } from "./fields";
import { counted, number } from "./format";
import { keyOf, type Loaded, type Session, useAsked } from "./session";
import { Timeline } from "./timeline";

const PAGE = 12;

interface Props {
  session: Session;
  loaded: Loaded;
}

/** What the view needs to know: acting only the run, quality also the data, asking everything. */
export function Chooser({ session, loaded, theme }: Props & { theme: string }) {
  const { state, update } = session;
  const asking = state.view === "ask";
  const total = loaded.info.value?.episodes ?? 0;
  const go = (episode: number) => update({ start: 0, edits: [], episode: Math.min(Math.max(episode, 0), Math.max(total - 1, 0)) });
  const timeline = loaded.timeline.value;
  return (
    <section class="panel" aria-label="Run, data and episode">
      <div class="choices">
        <RunChoice session={session} />
        {asking && <OtherChoice session={session} />}
        {state.view !== "act" && <DataChoice session={session} />}
        {asking && <WindowChoice session={session} loaded={loaded} total={total} onGo={go} />}
      </div>
      {asking && timeline && (
        <Timeline
          label={timeline.name ?? ""}
          length={timeline.length}
          curve={timeline.mean}
          absent={Object.values(timeline.absent).flat()}
          start={loaded.start}
          steps={loaded.length}
          theme={theme}
          onScrub={(start) => update({ start, edits: [] })}
        />
      )}
      {asking && <Browser session={session} loaded={loaded} onGo={go} />}
    </section>
  );
}

function RunChoice({ session: { studio, run, update } }: { session: Session }) {
  if (!studio || !run) return null;
  return (
    <label>
      Run
      <select aria-label="Run" value={keyOf(studio.runs, run.id)} onChange={(e) => update({ run: e.currentTarget.value, data: "", edits: [], features: null })}>
        {studio.runs.map((r) => <RunOption key={r.id} studio={studio} run={r} />)}
      </select>
    </label>
  );
}

function OtherChoice({ session: { studio, run, other, update } }: { session: Session }) {
  if (!studio || !run) return null;
  const alone = studio.runs.length < 2;
  return (
    <label>
      beside it
      <select
        aria-label="Run beside it"
        value={other ? keyOf(studio.runs, other.id) : ""}
        disabled={alone}
        title={alone ? "Start the studio with two runs to compare them: mtm studio RUN RUN" : "A second run, asked the same"}
        onChange={(e) => update({ other: e.currentTarget.value })}
      >
        <option value="">no other run</option>
        {studio.runs.filter((r) => r.id !== run.id).map((r) => <RunOption key={r.id} studio={studio} run={r} />)}
      </select>
    </label>
  );
}

function RunOption({ studio, run }: { studio: Studio; run: Run }) {
  return <option value={keyOf(studio.runs, run.id)}>{run.name} (step {run.step.toLocaleString("en")})</option>;
}

function DataChoice({ session: { studio, data, update } }: { session: Session }) {
  if (!studio) return null;
  return (
    <label>
      Data
      <select aria-label="Data" value={keyOf(studio.data, data)} onChange={(e) => update({ data: e.currentTarget.value, episode: 0, start: 0, edits: [] })}>
        {studio.data.map((d) => <option key={d.id} value={keyOf(studio.data, d.id)}>{d.name}</option>)}
      </select>
    </label>
  );
}

function WindowChoice({ session, loaded, total, onGo }: Props & { total: number; onGo: (episode: number) => void }) {
  const { state, update, studio } = session;
  const at = Math.min(state.episode, Math.max(total - 1, 0));
  const most = studio?.limits.longest_window ?? 1;
  return (
    <>
      <div class="field">
        <label for="episode">Episode{total ? ` of ${total.toLocaleString("en")}` : ""}</label>
        <div class="stepper">
          <button type="button" aria-label="Previous episode" disabled={at <= 0} onClick={() => onGo(at - 1)}>‹</button>
          <NumberField id="episode" min={0} max={Math.max(total - 1, 0)} value={at} onNumber={(n) => onGo(Math.floor(n))} />
          <button type="button" aria-label="Next episode" disabled={at >= total - 1} onClick={() => onGo(at + 1)}>›</button>
        </div>
      </div>
      <label>
        Steps in the window
        <NumberField min={1} max={most} value={loaded.length} onNumber={(n) => update({ length: within(n, 1, most), edits: [] })} />
      </label>
    </>
  );
}

function About({ loaded }: { loaded: Loaded }) {
  const { episode, info } = loaded;
  if (!episode) return <span class="muted">{info.error ? "" : "Opening the data …"}</span>;
  const absent = Object.entries(episode.absent).map(([name, share]) => `${name} absent in ${number(share * 100)} % of the steps`);
  const lacking = info.value?.lacking ?? [];
  return (
    <>
      <SideBadge side={episode.side} />
      <span class="muted">
        {" "}{[counted(episode.length, "step"), episode.return === null ? "" : `rewards sum to ${number(episode.return)}`,
          ...absent, lacking.length ? `the data have no ${lacking.join(", ")}` : ""]
          .filter(Boolean).join(" · ")}
      </span>
    </>
  );
}

export function SideBadge({ side }: { side: Side }) {
  if (side === "held-out") return <span class="badge held-out" title="The run did not see this episode in training">held out</span>;
  if (side === "training") return <span class="badge training" title="The run was trained on this episode">training</span>;
  if (side === "other") return <span class="badge" title="Not the data that the run was trained on">other data</span>;
  return <span class="badge" title="Working out which episodes were held out">…</span>;
}

/** A list of episodes to choose from. */
function Browser({ session, loaded, onGo }: { session: Session; loaded: Loaded; onGo: (episode: number) => void }) {
  const [open, setOpen] = useState(false);
  const [side, setSide] = useState("all");
  const [offset, setOffset] = useState(0);
  const { run, data, comeback } = session;
  const asked = open && run ? query("episodes", { run: run.id, data, offset, count: PAGE, side }) : null;
  const { value, error } = useAsked<Episodes>(asked, null, comeback);
  return (
    <details open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary class="small"><About loaded={loaded} /> · <u>browse the episodes</u></summary>
      <div class="row">
        <label class="small">
          Show{" "}
          <select value={side} onChange={(e) => { setSide(e.currentTarget.value); setOffset(0); }}>
            <option value="all">all episodes</option>
            <option value="held-out">held-out ones</option>
            <option value="training">training ones</option>
          </select>
        </label>
        <button type="button" disabled={offset === 0} onClick={() => setOffset(Math.max(offset - PAGE, 0))}>Previous {PAGE}</button>
        <button type="button" disabled={!value || offset + PAGE >= value.total} onClick={() => setOffset(offset + PAGE)}>Next {PAGE}</button>
        {value && <span class="small muted">{counted(value.total, "episode")}</span>}
      </div>
      {error && <p class="notice bad">{error}</p>}
      {value && (
        <div class="table-scroll">
          <table>
            <thead><tr><th>episode</th><th>steps</th><th>sum of rewards</th><th>absent</th><th></th></tr></thead>
            <tbody>
              {value.episodes.map((e) => (
                <tr key={e.episode} class="click" onClick={() => onGo(e.episode)}>
                  <td><button type="button" aria-label={`Episode ${e.episode}`}>{e.episode}</button></td>
                  <td>{e.length.toLocaleString("en")}</td>
                  <td>{number(e.return)}</td>
                  <td>{Object.keys(e.absent).join(", ") || "–"}</td>
                  <td><SideBadge side={e.side} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
