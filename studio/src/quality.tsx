// Episodes ranked by how much they surprise the model.
import { useEffect, useState } from "preact/hooks";
import { type Episodes, type Quality as Ranking, ask, Gone, query } from "./api";
import { SideBadge } from "./chooser";
import { counted, number } from "./format";
import type { Session } from "./session";

const PAGE = 25;

type Worst = Ranking["episodes"][number]["worst"][number];

export function Quality({ session }: { session: Session }) {
  const { run, data, comeback, studio } = session;
  const [ranking, setRanking] = useState<Ranking | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [count, setCount] = useState(PAGE);
  const most = studio?.limits.page ?? PAGE;
  useEffect(() => {
    if (!run) return;
    let timer = 0;
    let left = false;
    const here = { run: run.id, data };
    const look = async () => {
      try {
        const found = await ask<Ranking>(query("quality", { ...here, offset: 0, count }));
        if (left) return;
        setRanking(found);
        setError(null);
        if (found.state === "running") timer = window.setTimeout(look, 700);
      } catch (problem) {
        if (!left && !(problem instanceof Gone)) setError((problem as Error).message);
      }
    };
    const begin = async () => {
      try {
        await ask("quality", here);
      } catch (problem) {
        if (!left && !(problem instanceof Gone)) setError((problem as Error).message);
        return;
      }
      void look();
    };
    void begin();
    return () => { left = true; clearTimeout(timer); };
  }, [run, data, comeback, count]);
  if (!run) return null;
  return (
    <section class="panel" aria-label="Quality">
      <h2>Which episodes surprise {run.name}?</h2>
      <p class="small muted">
        Each token is hidden and predicted from what is around it. Surprise is the squared error over what is expected there: about 1 is
        usual, much more is worth a look. Click a step to see what the model expected instead.
      </p>
      {error && <p class="notice bad" role="alert">{error}</p>}
      {ranking?.error && <p class="notice bad" role="alert">{ranking.error}</p>}
      {ranking?.state === "running" && (
        <p role="status">
          <progress max={1} value={ranking.progress} aria-label="Ranking" /> Looking at the episodes …
        </p>
      )}
      {ranking && ranking.state === "done" && ranking.steps < ranking.of_steps && (
        <p class="small muted">A sample: {counted(ranking.steps, "step")} of {ranking.of_steps.toLocaleString("en")}.</p>
      )}
      {ranking && ranking.episodes.length > 0 && <Ranked session={session} ranking={ranking} onError={setError} />}
      {ranking && ranking.total > ranking.episodes.length && count < most && (
        <button type="button" onClick={() => setCount(Math.min(count + PAGE, most))}>Show more of {counted(ranking.total, "episode")}</button>
      )}
    </section>
  );
}

function Ranked({ session, ranking, onError }: { session: Session; ranking: Ranking; onError: (error: string) => void }) {
  const go = (episode: number, worst: Worst | undefined) => void look(session, episode, worst).catch((error: Error) => onError(error.message));
  const names = session.run?.modalities.map((m) => m.name) ?? [];
  const highest = Math.max(...ranking.episodes.map((e) => e.surprise), 1e-9);
  return (
    <div class="table-scroll">
      <table data-testid="ranking">
        <thead>
          <tr>
            <th>episode</th><th></th><th>surprise</th><th class="wide-only"></th>
            {names.map((name) => <th key={name} class="wide-only">{name}</th>)}
            <th>worst steps</th>
          </tr>
        </thead>
        <tbody>
          {ranking.episodes.map((e) => (
            <tr key={e.episode}>
              <td><button type="button" aria-label={`Look at episode ${e.episode}`} onClick={() => go(e.episode, e.worst[0])}>{e.episode}</button></td>
              <td><SideBadge side={e.side} /></td>
              <td><b>{number(e.surprise)}</b></td>
              <td class="wide-only"><div class="bar" style={{ width: `${(e.surprise / highest) * 6}rem` }} /></td>
              {names.map((name) => <td key={name} class="wide-only">{number(e.modalities[name])}</td>)}
              <td>
                <span class="row worst">
                  {e.worst.map((w) => (
                    <button
                      type="button" key={`${w.modality}-${w.step}`} title={`${w.modality} at step ${w.step}: surprise ${number(w.surprise)}`}
                      aria-label={`Look at episode ${e.episode}, ${w.modality} at step ${w.step}, surprise ${number(w.surprise)}`}
                      onClick={() => go(e.episode, w)}
                    >
                      {w.step}
                    </button>
                  ))}
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Go to a step with everything visible but the token that surprised. */
async function look(session: Session, episode: number, worst: Worst | undefined): Promise<void> {
  const { run, data, update } = session;
  if (!run) return;
  const found = await ask<Episodes>(query("episodes", { run: run.id, data, offset: episode, count: 1, side: "all" }));
  const steps = found.episodes[0]?.length ?? 1;
  const length = Math.min(run.default_length, steps);
  const step = worst?.step ?? 0;
  const start = Math.min(Math.max(step - Math.floor(length / 2), 0), steps - length);
  const bits = (name: string) => Array.from({ length }, (_, i) => (name === worst?.modality && start + i === step ? "0" : "1")).join("");
  const shown = Object.fromEntries(run.modalities.map(({ name }) => [name, bits(name)]));
  update({ view: "ask", episode, start, length, mask: "own", shown, edits: [] });
}
