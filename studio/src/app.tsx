// The page.
import { Act } from "./act";
import type { View } from "./address";
import { AnswerPanel } from "./answer";
import { Chooser } from "./chooser";
import { useOnce, useTheme } from "./hooks";
import icon from "./icon.svg";
import { Masks } from "./masks";
import { Quality } from "./quality";
import { type Session, useSession, useWindow } from "./session";

const VIEWS: [View, string, string][] = [
  ["ask", "Ask", "Show some tokens, see the others filled in"],
  ["act", "Act", "Let the run act in its environment"],
  ["quality", "Quality", "Which episodes surprise the run"],
];

export function App() {
  const session = useSession();
  const loaded = useWindow(session);
  const [theme, toggle] = useTheme();
  const [first, dismiss] = useOnce("mtm-studio-hint");
  const { state, studio, gone, refused, unknown } = session;
  return (
    <>
      <header class="top">
        <div class="name">
          <img src={icon} alt="" />
          <h1>mtm studio</h1>
        </div>
        <span class="muted wide-only grow">Choose what is visible; the model fills in the rest.</span>
        <nav aria-label="Views"><Views session={session} /></nav>
        <button type="button" onClick={toggle} aria-label={`Switch to ${theme === "dark" ? "light" : "dark"} colours`}>{theme === "dark" ? "☀" : "☾"}</button>
      </header>
      <main>
        {gone && (
          <p class="notice bad" role="alert" data-testid="gone">
            The server does not answer. Is <code>mtm studio</code> still running in its terminal? Start it again with{" "}
            <code>--port {location.port || "80"}</code>: this page goes on by itself, with all that you chose.
          </p>
        )}
        {refused && <p class="notice bad" role="alert">{refused}</p>}
        {unknown && (
          <p class="notice" role="alert">
            The address speaks of {unknown}, which this studio does not have; what is shown is of another. Start the studio with it: mtm studio RUN --data SPEC.
          </p>
        )}
        {first && state.view === "ask" && (
          <aside class="notice hint" aria-label="How it works">
            <p class="grow">
              Each cell of the grid is one measurement at one time step: click it to show it to the model, or to hide it. Whatever is
              hidden, the model fills in at once, and you see it beside what was really recorded. Then drag a blue dot up or down to ask: what if?
            </p>
            <button type="button" onClick={dismiss}>Got it</button>
          </aside>
        )}
        {!studio && !gone && !refused && <p class="empty" role="status">Loading …</p>}
        {studio && <Chooser session={session} loaded={loaded} theme={theme} />}
        {studio && state.view === "ask" && (
          <div class="ask">
            <div class="left"><Masks session={session} loaded={loaded} /></div>
            <AnswerPanel session={session} loaded={loaded} theme={theme} />
          </div>
        )}
        {studio && state.view === "act" && <Act session={session} theme={theme} />}
        {studio && state.view === "quality" && <Quality session={session} />}
      </main>
    </>
  );
}

function Views({ session }: { session: Session }) {
  return (
    <>
      {VIEWS.map(([view, name, about]) => (
        <button type="button" key={view} aria-pressed={session.state.view === view} title={about} onClick={() => session.update({ view })}>{name}</button>
      ))}
    </>
  );
}
