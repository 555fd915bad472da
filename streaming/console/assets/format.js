// Texts that only the browser can write: times in the viewer's zone, ages, numbers.

const WHOLE = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "2-digit",
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "2-digit" });
const NUMBER = new Intl.NumberFormat();

export const utcText = (at) => new Date(at).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");

export const wholeText = (at) => `${WHOLE.format(at)} · ${utcText(at)}`;

export function shortText(at) {
  const far = Math.abs(Date.now() - at) > 20 * 3600 * 1000;
  return far ? `${DAY.format(at)} ${CLOCK.format(at)}` : CLOCK.format(at);
}

export function ageText(at) {
  const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
  if (seconds < 100) return `${seconds} s ago`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

export const numberText = (value) => NUMBER.format(value);
