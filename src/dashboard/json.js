// JSON as it is written. Numbers in a state keep their text: 1 and 1.0 differ, and 12345678901234567890 must
// not become another number. Values that JavaScript would print differently keep their text.

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const MARK = "\u0000number";

export class Written {
  constructor(text) {
    this.text = text;
  }
}

/** A value that is compared but not displayed. */
export class Secret {
  constructor(value) {
    this.value = value;
  }
}

export function parse(text) {
  let isOdd = false;
  const marked = text.replace(TOKEN, (token) => {
    if (token[0] === '"' || String(Number(token)) === token) {
      return token;
    }
    isOdd = true;
    return `{"\\u0000number":"${token}"}`;
  });
  const revive = (_, value) => (isTree(value) && !Array.isArray(value) && Object.hasOwn(value, MARK) ? new Written(String(value[MARK])) : value);
  return isOdd ? JSON.parse(marked, revive) : JSON.parse(text);
}

/** An object or an array. */
export function isTree(value) {
  return value !== null && typeof value === "object" && !(value instanceof Written) && !(value instanceof Secret);
}

export function parts(value) {
  return isTree(value) ? Object.entries(value) : [];
}

export function same(a, b) {
  if (a instanceof Secret && b instanceof Secret) {
    return same(a.value, b.value);
  }
  if (a instanceof Written && b instanceof Written) {
    return a.text === b.text;
  }
  if (!isTree(a) || !isTree(b) || Array.isArray(a) !== Array.isArray(b)) {
    return a === b;
  }
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}

/** Indented by two spaces per level. */
export function pretty(value, indent = "") {
  if (value instanceof Secret) {
    return "(sensitive)";
  }
  if (value instanceof Written) {
    return value.text;
  }
  if (!isTree(value)) {
    return JSON.stringify(value);
  }
  const inside = `${indent}  `, isList = Array.isArray(value);
  const lines = parts(value).map(([name, part]) => `${inside}${isList ? "" : `${JSON.stringify(name)}: `}${pretty(part, inside)}`);
  const [from, to] = isList ? "[]" : "{}";
  return lines.length === 0 ? from + to : `${from}\n${lines.join(",\n")}\n${indent}${to}`;
}
