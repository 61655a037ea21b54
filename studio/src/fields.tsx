// Input of numbers.
import { useState } from "preact/hooks";

interface Props {
  id?: string;
  min?: number;
  max?: number;
  step?: string;
  "aria-label"?: string;
  value: string | number;
  onNumber: (value: number) => void;
}

/** What is being typed stays, whatever arrives meanwhile; it counts once it is done, if it is a number. */
export function NumberField({ value, onNumber, ...others }: Props) {
  const [typed, setTyped] = useState<string | null>(null);
  const done = (text: string) => {
    setTyped(null);
    const given = Number(text);
    if (text.trim() !== "" && Number.isFinite(given)) onNumber(given);
  };
  return (
    <input
      {...others}
      type="number"
      value={typed ?? value}
      onInput={(e) => setTyped(e.currentTarget.value)}
      onChange={(e) => done(e.currentTarget.value)}
    />
  );
}

/** The nearest whole number within bounds. */
export function within(value: number, low: number, high: number): number {
  return Math.min(Math.max(Math.floor(value), low), high);
}
