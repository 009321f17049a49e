// For eslint, which tools/npm-tools fetches: BELAY_ESLINT is its folder.

import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.BELAY_ESLINT, "package.json"));
const js = require("@eslint/js");
const globals = require("globals");

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2022, sourceType: "module", globals: globals.node },
    rules: {
      "curly": "error", "eqeqeq": "error", "no-implicit-coercion": "error", "no-shadow": "error", "no-unused-vars": "error",
      "no-var": "error", "prefer-const": "error", "quotes": ["error", "double", { avoidEscape: true }], "semi": "error",
      "max-lines-per-function": ["error", 70],
    },
  },
];
