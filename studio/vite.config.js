// Builds the page into the Python package.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";

const LEFT_OUT = new Set(["node_modules"]);

/** Every file of the source, as paths with forward slashes. */
function sources(folder = ".") {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (LEFT_OUT.has(entry.name)) return [];
    return entry.isDirectory() ? sources(path) : [path.split("\\").join("/")];
  });
}

/** SHA-256 over each file's path and digest; a test of the Python side works it out again. */
function digest() {
  const whole = createHash("sha256");
  for (const path of sources().sort()) {
    const file = createHash("sha256").update(readFileSync(path)).digest("hex");
    whole.update(`${path} ${file}\n`);
  }
  return whole.digest("hex");
}

const manifest = {
  name: "manifest",
  generateBundle() {
    const source = JSON.stringify({ source_sha256: digest() }) + "\n";
    this.emitFile({ type: "asset", fileName: "manifest.json", source });
  },
};

export default defineConfig({
  base: "./",
  plugins: [manifest],
  build: {
    outDir: process.env.STUDIO_OUT ?? "../src/mtm/evaluation/studio/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "assets/studio-[hash].js",
        assetFileNames: "assets/studio-[hash][extname]",
        inlineDynamicImports: true,
      },
    },
  },
});
