// Numbers for people.

/** A few significant figures, thousands spelled out, small ones in powers of ten. */
export function number(value: number | null | undefined, figures = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(figures)));
}

/** As precise as a person may want to type it. */
export function exact(value: number): string {
  return String(Number(value.toPrecision(6)));
}

/** 1 step, 2 steps. */
export function counted(count: number, what: string): string {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}
