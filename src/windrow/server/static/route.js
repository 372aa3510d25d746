// Where in the console one is: #/query/name → ["query", "name"].
import { useEffect, useState } from "./vendor/ui.js";

const route = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
export const go = (...parts) => { location.hash = `#/${parts.map(encodeURIComponent).join("/")}`; };

export function useRoute() {
  const [at, set] = useState(route());
  useEffect(() => {
    const moved = () => set(route());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return at;
}
