// Where in the console one is: #/query/name → ["query", "name"].
import { useEffect, useState } from "./vendor/ui.js";

const route = (hash) => hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
export const go = (...parts) => { location.hash = `#/${parts.map(encodeURIComponent).join("/")}`; };

export function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const moved = () => set(location.hash);
    addEventListener("hashchange", moved);
    moved(); // an effect runs after the first picture: whoever moved on before it was not heard
    return () => removeEventListener("hashchange", moved);
  }, []);
  return route(hash);
}
