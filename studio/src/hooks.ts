// Small things that browsers keep.
import { useEffect, useState } from "preact/hooks";

const THEME = "mtm-studio-theme";

/** light or dark: as the system is, until somebody chooses. */
export function useTheme(): [string, () => void] {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const [chosen, setChosen] = useState<string | null>(kept(THEME));
  const [system, setSystem] = useState(dark.matches);
  useEffect(() => {
    const changed = () => setSystem(dark.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  const theme = chosen ?? (system ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    keep(THEME, next);
    setChosen(next);
  };
  return [theme, toggle];
}

/** Whether something was shown before; it is from then on. */
export function useOnce(name: string): [boolean, () => void] {
  const [seen, setSeen] = useState(kept(name) !== null);
  return [!seen, () => { keep(name, "1"); setSeen(true); }];
}

// A browser may refuse to keep anything; then each visit is the first.
function kept(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    return;
  }
}
